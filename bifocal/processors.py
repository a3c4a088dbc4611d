"""Processors and memory that this process may use: a container or an affinity may allow less than
the machine has."""

import math
import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Files with the microseconds of processors in a period, and the period, of both versions."""
MEMORY = ("memory.max", "memory/memory.limit_in_bytes")
BYTES_PER_DECODER = 256 << 20
"""Three times the memory that decodes 12 megapixels."""


def usable_processors() -> int:
    """Return the number of processors that this process may use, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    limits = [len(affinity(0)) if affinity else os.cpu_count() or 1]
    for names in QUOTAS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            texts = [(CGROUP / name).read_text() for name in names]
            quota, period = map(int, " ".join(texts).split())
            limits += [math.ceil(quota / period)] if quota > 0 else []
    return min(limits)


def usable_decoders() -> int:
    """Return the number of threads that may decode images at once, at least 1."""
    limits = [usable_processors()]
    for name in MEMORY:
        with suppress(OSError, ValueError):
            limits.append(int((CGROUP / name).read_text()) // BYTES_PER_DECODER)
    return max(1, min(limits))


PROCESSORS = usable_processors()
