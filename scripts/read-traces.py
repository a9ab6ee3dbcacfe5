#!/usr/bin/env python3
"""Read traces in a few lines for each format, and compare with what coalesce-sim says: read-traces.py TRACE...

Counts completions, and sums the times from submission to completion. It knows as little as that takes, and only of good traces.
"""

import collections
import json
import re
import subprocess
import sys


def blkparse(text):
    verbs = {"D": "submit", "R": "requeue", "C": "complete"}
    lines = (line.split() for line in text.splitlines())
    at = lambda f: f[7] if "+" in f else f[6]  # a flush has no sector
    return ((f[3], verbs[f[5]], (f[0], at(f))) for f in lines if len(f) > 7 and f[5] in verbs)


def tracepoint(text):
    verbs = {"setup_cmd": "submit", "issue": "submit", "requeue": "requeue", "complete_rq": "complete", "complete": "complete"}
    nvme = r"([\d.]+):? +(?:nvme:)?nvme_(setup_cmd|complete_rq): (nvme\d+):.* qid=(\d+), cmdid=(\d+)"
    recorded = r"([\d.]+): +nvme:nvme_(setup_cmd|complete_rq): \[FAILED TO PARSE\].* ctrl_id=(\d+) qid=(\d+) .*\bcid=(\d+)"
    block = r"([\d.]+):? +(?:block:)?block_rq_(issue|requeue|complete): (\d+,\d+) (\S+) .*\) (\d+) \+ (\d+)"
    for at, verb, device, a, b in re.findall(nvme, text) + re.findall(recorded, text):
        yield at, verbs[verb], (device, a, int(b) % 4096)
    for at, verb, device, letters, sector, sectors in re.findall(block, text):
        if (verb, letters[0], sectors) != ("complete", "W", "0"):  # which asked for a flush, and that was the device's
            has_sector = sectors != "0" and int(sector) < 2**64 - 1 and letters[0] != "N"
            yield at, verbs[verb], (device, sector if has_sector else letters)


def own(text):
    for line in map(json.loads, text.splitlines()):
        if line["event"] != "interrupt":
            yield line["time_ns"], line["event"], (line.get("disk"), line.get("queue"), line["id"])


def matched(events):
    """Completions, and the sum of the times of those whose submission was seen, in ns."""
    in_flight, requeued, count, time = collections.defaultdict(list), collections.Counter(), 0, 0
    ns = lambda at: round(float(at) * 1e9) if "." in str(at) else int(at)
    for at, verb, key in sorted(((ns(at), verb, key) for at, verb, key in events), key=lambda event: event[0]):
        if verb == "complete":
            count, time = count + 1, time + (at - in_flight[key].pop(0) if in_flight[key] else 0)
        elif verb == "requeue" or requeued[key] > 0:
            requeued[key] += 1 if verb == "requeue" else -1
        else:
            in_flight[key].append(at)
    return count, time


def last_column(text):
    """biosnoop: latencies in ms."""
    found = [line.split()[-1] for line in text.splitlines() if re.match(r"\s*\d", line)]
    return len(found), round(sum(float(ms) * 1e6 for ms in found))


def second_column(text):
    """fio: latencies in ns."""
    found = [int(line.split(",")[1]) for line in text.splitlines()]
    return len(found), sum(found)


READERS = {
    "blkparse": lambda text: matched(blkparse(text)),
    "tracepoint": lambda text: matched(tracepoint(text)),
    "json": lambda text: matched(own(text)),
    "biosnoop": last_column,
    "fio": second_column,
}

if sys.argv[1:] == ["--help"]:
    print(__doc__.strip())
    sys.exit()
seen = collections.Counter()
for path in sys.argv[1:]:
    said = subprocess.run(["coalesce-sim", "replay", path, "--policy", "none", "--json"], check=True, stdout=subprocess.PIPE)
    said = json.loads(said.stdout)
    with open(path, encoding="utf-8") as file:
        count, time = READERS[said["format"]](file.read())
    theirs = said["policies"][0]["completions"], said["in_flight_time_ns"]
    print(f"{path}: {said['format']}, {count} completions, {time} ns in flight")
    if theirs != (count, time):
        sys.exit(f"{path}: coalesce-sim says {theirs}")
    seen[said["format"]] += 1
missing = READERS.keys() - seen.keys()
sys.exit(f"no trace of {', '.join(missing)}" if missing else 0)
