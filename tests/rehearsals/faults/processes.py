"""Processes that are killed: the work they have done, and their end."""

import os
import signal
import subprocess
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a command with SIGKILL."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def work_seconds(process_id: int) -> float:
    """CPU time of a process and its descendants, ended ones included: unlike the clock, it ignores
    other programs."""
    ticks, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has ended meanwhile
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found, total = [process_id], 0
    while found:
        current = found.pop()
        total += ticks.get(current, 0)
        found += [child for child, parent in parents.items() if parent == current]
    return total / TICKS
