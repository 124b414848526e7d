#!/usr/bin/env python3
"""Peak host memory of a command and all processes that it starts, sampled from outside (Linux).

usage: hostmem.py FILE COMMAND [ARGUMENT ...]

Writes MiB to FILE: the largest sample. A sample is the sum of PSS over the processes, where a page
that N of them map counts once, plus the blocks of memfds that none of them had mapped at that moment.
Takes five samples per second. The exit code is the command's. Needs only Python's own library.
"""
import os
import subprocess
import sys
import time

PERIOD_S = 0.2


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def descendants(root):
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            children.setdefault(parent_of(pid), []).append(int(pid))
        except OSError:  # it has ended
            pass
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def rollup_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        fields = [line.split() for line in file]
    return {f[0].rstrip(":"): int(f[1]) for f in fields if f[-1] == "kB"}


def memfd_kib(pid, seen):
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        if os.readlink(f"{folder}/{number}").startswith("/memfd:"):
            stat = os.stat(f"{folder}/{number}")
            seen[stat.st_dev, stat.st_ino] = stat.st_blocks // 2


def sample_kib(root):
    pss = mapped = 0
    memfds = {}
    for pid in descendants(root):
        try:
            rollup = rollup_kib(pid)
            pss += rollup["Pss"]
            mapped += rollup["Pss_Shmem"]
            memfd_kib(pid, memfds)
        except (OSError, KeyError):
            pass
    return pss + max(0, sum(memfds.values()) - mapped)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    child = subprocess.Popen(sys.argv[2:])
    peak = 0
    while child.poll() is None:
        begin = time.monotonic()
        peak = max(peak, sample_kib(child.pid))
        time.sleep(max(0.01, PERIOD_S - (time.monotonic() - begin)))
    with open(sys.argv[1], "w") as file:
        print(f"{peak / 1024:.0f}", file=file)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main())
