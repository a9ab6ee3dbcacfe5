#!/usr/bin/env python3
"""Gives a virtual machine its CPU in slices, and tells its target of them.

    slices.py PID CONTROL CTRLR RUN_US PAUSE_US TOLD

Until process PID ends: it runs for RUN_US, then it is stopped (SIGSTOP) for PAUSE_US, as if another guest had the CPU. While the
file TOLD exists, the target at the control socket CONTROL hears of each slice and each pause of disk CTRLR, and for how long.
Needs the right to real-time priority, so that the machine's other work moves no slice by much. At the end prints how late slices
ended, in us: median, 99 %, most.
"""
import json
import os
import signal
import socket
import sys
import time

if sys.argv[1:] == ["--help"]:
    print(__doc__.strip())
    sys.exit()
if len(sys.argv) != 7:
    sys.exit("slices.py: expected six arguments: PID CONTROL CTRLR RUN_US PAUSE_US TOLD; --help explains them")
pid, control, ctrlr, run_us, pause_us, told = sys.argv[1:]
for name, number in ("PID", pid), ("RUN_US", run_us), ("PAUSE_US", pause_us):
    if not (number.isascii() and number.isdigit()):
        sys.exit(f"slices.py: {name} is {number}; allowed: a whole number")
pid, run_us, pause_us = int(pid), int(run_us), int(pause_us)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
stream = socket.socket(socket.AF_UNIX)
stream.connect(control)
late = []


def tell(running, until):
    left = int((until - time.monotonic()) * 1e6)
    if left > 0 and os.path.exists(told):
        params = {"ctrlr": ctrlr, "running": running, "for_us": left}
        # Without an "id": nobody waits for an answer.
        stream.sendall(json.dumps({"jsonrpc": "2.0", "method": "set_running", "params": params}).encode() + b"\n")


def has_ended():
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


try:
    end = time.monotonic()
    while not has_ended():
        for running, us in (True, run_us), (False, pause_us):
            end = max(end + us / 1e6, time.monotonic())
            if running:
                tell(True, end)
                os.kill(pid, signal.SIGCONT)
                due = end
            else:
                os.kill(pid, signal.SIGSTOP)
                late.append((time.monotonic() - due) * 1e6)
                tell(False, end)
            time.sleep(max(0, end - time.monotonic()))
except (ProcessLookupError, BrokenPipeError):
    pass
finally:
    if not has_ended():
        os.kill(pid, signal.SIGCONT)
late.sort()
if late:
    print(*(round(late[min(len(late) - 1, int(len(late) * q))]) for q in (0.5, 0.99, 1)), len(late))
