"""Parts of a stage's work, which machines may do at the same time: ``i/n`` is part i, from 1, of n."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def parse(shard: str) -> tuple[int, int]:
    """``"2/4"`` as (2, 4).

    Raises:
        ValueError: it is no such pair.

    >>> parse("2/4")
    (2, 4)
    """
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"--shard {shard!r}: expected i/n with i from 1 to n, such as 2/4")
    return int(number), int(count)


def name_of(artifact: str, shard: str) -> str:
    """Name of the artifact that a shard writes in the place of ``artifact``.

    >>> name_of("features", "2/4")
    'features-2-of-4'
    """
    return "{}-{}-of-{}".format(artifact, *parse(shard))


def share(items: Sequence[T], shard: str) -> Sequence[T]:
    """The items of a shard: a run of neighbours, so that the shards one after another are all items in order.

    >>> [list(share(range(5), f"{number}/3")) for number in (1, 2, 3)]
    [[0], [1, 2], [3, 4]]
    """
    number, count = parse(shard)
    return items[len(items) * (number - 1) // count : len(items) * number // count]
