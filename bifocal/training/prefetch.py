"""Read the next batch while the model trains on the current one."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")


def prefetch(read: Callable[[Tensor], T], batches: Sequence[Tensor]) -> Iterator[T]:
    """Yield the batches in order; a thread reads the next batch while the caller works on the current one."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        pending = [reader.submit(read, rows) for rows in batches[:1]]
        for index in range(len(batches)):
            batch = pending.pop().result()
            pending = [reader.submit(read, rows) for rows in batches[index + 1 : index + 2]]
            yield batch
