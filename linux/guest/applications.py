#!/usr/bin/env python3
"""The table of applications.sh: the guest's lines, the instructions at each mark, and what the disk counted at each step."""
import collections, json, math, statistics, sys

lines, marks, stats = sys.argv[1:]
turns = [json.loads(line[7:]) for line in open(lines) if line.startswith('RESULT {"policy"')]
marks = [int(line) for line in open(marks)]
if marks and len(marks) != 2 * len(turns):
    sys.exit(f"applications: {len(turns)} turns, but {len(marks)} marks")
for turn, before, after in zip(turns, marks[::2], marks[1::2]):
    turn["instructions"] = after - before
stats = [{key: sum(queue[key] for queue in json.loads(line)) for key in ("completions", "signals")} for line in open(stats)]
if len(stats) != len(turns) + 1:
    sys.exit(f"applications: {len(turns)} turns, but {len(stats)} statistics")
for turn, before, after in zip(turns, stats, stats[1:]):
    turn |= {key: after[key] - before[key] for key in after}


def interval(ratios):
    """Where the median of many rounds is, with 95 %: the k-th smallest and k-th largest of these (sign test)."""
    n, k = len(ratios), 0
    while 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n <= 0.05:
        k += 1
    return (sorted(ratios)[k - 1], sorted(ratios)[n - k]) if k else None


def ratio(of, one):
    """Each round's value to that of `none` in the same round."""
    ratios = [a / b for a, b in zip(of, one) if a is not None and b]
    if not ratios:
        return "-"
    between = interval(ratios)
    return f"{statistics.median(ratios):.2f}" + (f" ({between[0]:.2f}-{between[1]:.2f})" if between else "")


def share(rounds):
    """Of the CPU time of two jobs, the first one's."""
    both = [(turn["cpu"], turn["cpu2"]) for turn in rounds if turn.get("cpu2")]
    return f"{statistics.median(a / (a + b) for a, b in both):.2f}" if both else "-"


start = {turn["load"]: turn["instructions"] for turn in turns if turn["policy"] == "start"} if marks else {}
turns = [turn for turn in turns if turn["policy"] != "start"]
for turn in turns if marks else []:
    turn["instructions"] -= start[turn["load"]]

loads = collections.defaultdict(lambda: collections.defaultdict(list))
for turn in turns:
    loads[turn["load"]][turn["policy"]].append(turn)
print("| load | policy | signals/I/O | interrupts/I/O | interrupts/op | instructions/op | to none | switches/op | ops/s | p50 | p99 | share |")
print("| -- | -- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
for load, policies in loads.items():
    none = policies["none"]
    # KVell reads its whole disk when it starts, and goes on until RocksDB is ready: those instructions are nobody's operations.
    counted = marks and "kvell" not in load
    for policy, rounds in policies.items():

        def per(what, by):
            return statistics.median(turn[what] / turn[by] for turn in rounds)

        def to_none(value):
            return ratio([value(turn) for turn in rounds], [value(turn) for turn in none])

        def time(what):
            absolute = statistics.median(turn[what] for turn in rounds) if rounds[0][what] is not None else None
            return "-" if absolute is None else f"{absolute:.0f} us" if policy == "none" else to_none(lambda turn: turn[what])

        rate = statistics.median(turn["ops"] / turn["seconds"] for turn in rounds)
        print("| " + " | ".join([
            load, {"none2": "none, again"}.get(policy, policy),
            f"{per('signals', 'completions'):.3f}", f"{per('interrupts', 'requests'):.3f}", f"{per('interrupts', 'ops'):.2f}",
            f"{per('instructions', 'ops'):.0f}" if counted else "-",
            to_none(lambda turn: turn["instructions"] / turn["ops"]) if counted else "-",
            f"{per('switches', 'ops'):.2f}",
            f"{rate:.0f}" if policy == "none" else to_none(lambda turn: turn["ops"] / turn["seconds"]),
            time("p50"), time("p99"), share(rounds),
        ]) + " |")
