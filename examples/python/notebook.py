"""What policies do with a trace and in a simulation, as tables and a picture: notebook.py TRACE PICTURE [PLAN]

Each `# %%` begins a cell of a notebook. docs/json.md has all members. Needs coalesce-sim, pandas and matplotlib.
"""

# %% What is called, and what it prints
import json
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")  # a notebook leaves this out
import matplotlib.pyplot as plt
import pandas as pd

trace, picture, *plan = sys.argv[1:]


def coalesce_sim(*arguments):
    """What `coalesce-sim ARGUMENTS --json` prints: a list of its objects."""
    command = ["coalesce-sim", *arguments, "--json"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    decoder, objects = json.JSONDecoder(), []
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        objects.append(value)
        text = text[end:]
    return objects


# %% A trace: a line for each policy
[replay] = coalesce_sim("replay", trace)
print(replay["answer"], *replay["notes"], sep="\n")
policies = pd.json_normalize(replay["policies"]).set_index("policy")
us = policies.filter(like="lat_ns.percentile").rename(columns=lambda name: f"p{float(name.split('percentile.')[1]):g}")
print(policies[["interrupts_per_io", "cpu", "held_share"]].join(us / 1000).round(3).to_string())

# %% The same as a picture: what is saved, what it costs, and the fewest interrupts for that
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
held = 100 * policies["held_share"].clip(lower=0.001)
fewest = policies["optimum"].astype(float) / policies["completions"]
left.vlines(held, fewest, policies["interrupts_per_io"], color="silver")
for name in policies.index:
    left.plot(held[name], policies["interrupts_per_io"][name], "o", label=name)
left.plot(held, fewest, "k_", label="optimum")
left.set(xscale="log", xlabel="held, % of the requests' time", ylabel="interrupts per I/O", title=replay["format"])
left.legend(fontsize="small")

# %% A simulation, in which the requester reacts: a line for each depth and policy
for path in plan:
    runs = pd.json_normalize(coalesce_sim("run", path))
    depth = [column for column in runs if column.startswith("settings.") and column.endswith("depth")]
    for name, of_policy in runs.groupby("policy", sort=False):
        x = of_policy[depth[0]].astype(int) if depth else range(len(of_policy))
        right.plot(x, of_policy["iops"] / 1000, "o-", label=name)
    right.set(xscale="log", xlabel=depth[0] if depth else "run", ylabel="1000 I/O per second", title=runs["plan"][0])
    right.legend(fontsize="small")
figure.savefig(picture)
