"""Processors that this process may use: a container or an affinity may allow fewer than the machine
has."""

import math
import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Files with the microseconds of processors in a period, and the period, of both versions."""


def usable_processors() -> int:
    """Return the number of processors that this process may use, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    limits = [len(affinity(0)) if affinity else os.cpu_count() or 1]
    for names in QUOTAS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = map(
                int, " ".join((CGROUP / name).read_text() for name in names).split()
            )
            limits += [math.ceil(quota / period)] if quota > 0 else []
    return min(limits)


PROCESSORS = usable_processors()
