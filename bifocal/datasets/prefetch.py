"""Compute results in threads before they are needed, in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from bifocal.processors import usable_decoders

T = TypeVar("T")
S = TypeVar("S")


def prefetch(
    function: Callable[[T], S], items: Iterable[T], ahead: int, threads: int | None = None
) -> Iterator[S]:
    """Yield ``function(item)`` for each item, in order, computed by threads, at most ``ahead`` in
    advance."""
    waiting: deque[Future[S]] = deque()
    with ThreadPoolExecutor(threads or usable_decoders()) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
