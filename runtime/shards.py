"""Shards: equal shares of a stage's items that machines process in parallel; ``i/n`` is share i,
from 1, of n."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from runtime import artifacts

T = TypeVar("T")
LISTING = "listing"
"""Input of a shard: the output of shard 0, which lists the items of all shards."""
EQUAL_KEYS = ("component", "parameters", "inputs", "code", "packages")
"""Keys of the manifest that all shards must share."""


def parse_shard(shard: str, first: int = 1) -> tuple[int, int]:
    """Return the number and the count of a shard."""
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and first <= int(number) <= int(count) > 0):
        raise ValueError(f"--shard {shard!r}: expected i/n with i from {first} to n, such as 2/4")
    return int(number), int(count)


def artifact_name(artifact: str, shard: str) -> str:
    """Name of the artifact that a shard writes instead of ``artifact``."""
    return "{}-{}-of-{}".format(artifact, *parse_shard(shard, 0))


def items_of_shard(items: Sequence[T], shard: str) -> Sequence[T]:
    """Return the items of a shard: a contiguous range; all shards in order are all items in
    order."""
    number, count = parse_shard(shard)
    return items[len(items) * (number - 1) // count : len(items) * number // count]


def read_shards(paths: Iterable[Path], stage: str) -> dict[Path, dict[str, Any]]:
    """Return the manifests of all shards of a stage in order; ``stage`` is a verb for messages
    ("extract")."""
    listed = [(path, artifacts.read_manifest(path)) for path in paths]
    shards = [(path, manifest["arguments"].get("shard", "1/1")) for path, manifest in listed]
    count = parse_shard(shards[0][1])[1]
    expected = [f"{number}/{count}" for number in range(1, count + 1)]
    if sorted(shard for _, shard in shards) != sorted(expected):
        got = ", ".join(f"{shard} in {path}" for path, shard in shards)
        raise ValueError(f"expected each of the shards {', '.join(expected)} once, got {got}")
    first, manifest = listed[0]
    for path, other in listed:
        for key in EQUAL_KEYS:
            if other[key] != manifest[key]:
                raise ValueError(
                    f"{path} and {first} differ in their {key}: {other[key]} and "
                    f"{manifest[key]}; {stage} all shards from one dataset, with the same "
                    "parameters and the same code"
                )
    number_of = {path: parse_shard(shard)[0] for path, shard in shards}
    return dict(sorted(listed, key=lambda entry: number_of[entry[0]]))


def check_equal_files(manifests: Mapping[Path, Mapping[str, Any]], stage: str) -> None:
    """Raise ``ValueError`` if a file with one name has different contents in two shards."""
    files: dict[str, tuple[Path, str]] = {}
    for path, manifest in manifests.items():
        for name, digest in manifest["files"].items():
            other, known = files.setdefault(name, (path, digest))
            if known != digest:
                raise ValueError(
                    f"{path} and {other} have different files {name}: {stage} one of them again"
                )
