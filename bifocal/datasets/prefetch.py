"""Compute results in threads before they are needed, in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from bifocal.processors import CGROUP, usable_processors

T = TypeVar("T")
S = TypeVar("S")
MEMORY = ("memory.max", "memory/memory.limit_in_bytes")
BYTES_PER_THREAD = 256 << 20
"""Three times what a thread needs that decodes 12 megapixels."""


def usable_threads() -> int:
    """Return how many threads may decode images at once, by the processors and the memory of the
    container."""
    limits = [usable_processors()]
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
