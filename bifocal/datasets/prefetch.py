"""Compute results in threads before they are needed, in order."""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
S = TypeVar("S")
CGROUP = Path("/sys/fs/cgroup")
QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Files with the microseconds of processors in a period, and the period, of both versions."""
MEMORY = ("memory.max", "memory/memory.limit_in_bytes")
BYTES_PER_THREAD = 256 << 20
"""Three times what a thread needs that decodes 12 megapixels."""


def usable_threads() -> int:
    """Return how many threads may decode images at once: the machine may have more processors than
    this process or its container may use, and more memory."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    limits = [len(affinity(0)) if affinity else os.cpu_count() or 1]
    for names in QUOTAS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = map(
                int, " ".join((CGROUP / name).read_text() for name in names).split()
            )
            limits += [math.ceil(quota / period)] if quota > 0 else []
    for name in MEMORY:
        with suppress(OSError, ValueError):
            limits.append(int((CGROUP / name).read_text()) // BYTES_PER_THREAD)
    return max(1, min(limits))


def prefetch(
    function: Callable[[T], S], items: Iterable[T], ahead: int, threads: int | None = None
) -> Iterator[S]:
    """Yield ``function(item)`` for each item, in order, computed by threads, at most ``ahead`` in
    advance."""
    waiting: deque[Future[S]] = deque()
    with ThreadPoolExecutor(threads or usable_threads()) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
