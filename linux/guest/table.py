#!/usr/bin/env python3
"""The table of guest.sh hints: the device's record, split at the reads of 28 KiB, with the names of the rows."""
import collections, json, sys

# How much the kernel's threads write before the caller does; how many of the four fio submits together.
VARY = ("pwrite, then sync", "io_submit of 4 of 1 MiB in parts of 64 KiB, O_DIRECT")
record, rows = sys.argv[1:]
names = [json.loads(line[7:])["name"] for line in open(rows) if line.startswith('RESULT {"job":"row"')]
hints, parts = {}, [collections.Counter()]
for line in open(record):
    event = json.loads(line)
    key = event["queue"], event.get("id")
    if event["event"] == "submit":
        hints[key] = event
    elif event["event"] == "complete":
        submit = hints.pop(key)
        if submit["bytes"] == 28672:
            parts.append(collections.Counter())
        else:
            parts[-1][submit["op"], event["hint"]] += 1
if len(parts) != len(names) + 1:
    sys.exit(f"table: {len(names)} rows, but {len(parts) - 1} reads of 28 KiB in the record")
print("| system call | read | write | flush |\n|---|---|---|---|")
for name, part in zip(names, parts):
    if name == "-":
        continue
    cells = []
    if name in VARY:
        part = collections.Counter({key: "some" for key in part})
    for op in ("read", "write", "flush"):
        cells.append(", ".join(f"{n} {hint}" for hint in ("urgent", "barrier", "plain") if (n := part[op, hint])))
    print(f"| {name} | " + " | ".join(cells) + " |")
