"""Shards: equal shares of a stage's items that machines process in parallel; ``i/n`` is share i, from 1, of n."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def parse_shard(shard: str) -> tuple[int, int]:
    """Return the number and the count of a shard.

    Raises:
        ValueError: ``shard`` is not i/n with i from 1 to n.

    Example:
        >>> parse_shard("2/4")
        (2, 4)
    """
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"--shard {shard!r}: expected i/n with i from 1 to n, such as 2/4")
    return int(number), int(count)


def artifact_name(artifact: str, shard: str) -> str:
    """Name of the artifact that a shard of the stage writes instead of ``artifact``.

    Example:
        >>> artifact_name("features", "2/4")
        'features-2-of-4'
    """
    return "{}-{}-of-{}".format(artifact, *parse_shard(shard))


def items_of_shard(items: Sequence[T], shard: str) -> Sequence[T]:
    """Return the items of a shard: a contiguous range; all shards in order are all items in order.

    Example:
        >>> [list(items_of_shard(range(5), f"{number}/3")) for number in (1, 2, 3)]
        [[0], [1, 2], [3, 4]]
    """
    number, count = parse_shard(shard)
    return items[len(items) * (number - 1) // count : len(items) * number // count]
