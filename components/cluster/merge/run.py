"""Cluster step merge: run."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bifocal.features import FeatureStore
from components.cluster.merge.spec import MergeParams
from runtime import artifacts
from runtime.shards import parse_shard

EQUAL_KEYS = ("component", "parameters", "inputs", "code", "packages")
"""Keys of the manifest that all shards must share."""


def run(params: MergeParams, *, features: Path, **shards: Path) -> dict[str, float]:
    """Link the files of all shards into one feature store.

    Files are hard-linked; they are copied if the shards are on another file system.

    Args:
        features: the merged store.
        shards: artifacts of the runs with ``--shard i/n``, in any order.

    Returns:
        Images, regions and dimension of the store, and the number of shards.

    Raises:
        ValueError: a shard is missing or occurs twice, or the shards differ in parameters, inputs, code or packages.
    """
    manifests = {path: artifacts.read_manifest(path) for path in shards.values()}
    _check_complete([(path, manifests[path]["arguments"].get("shard", "1/1")) for path in shards.values()])
    _check_equal(manifests)
    for path, manifest in manifests.items():
        for name in manifest["files"]:
            target = features / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # from a killed run, or the equal file of another shard
            _link(path / name, target)
    store = FeatureStore(features)
    return {"images": len(store), "regions": store.regions, "dim": store.dim, "shards": len(manifests)}


def _check_equal(manifests: dict[Path, dict[str, Any]]) -> None:
    first, expected = next(iter(manifests.items()))
    files: dict[str, tuple[Path, str]] = {}
    for path, manifest in manifests.items():
        for key in EQUAL_KEYS:
            if manifest[key] != expected[key]:
                raise ValueError(
                    f"{path} and {first} differ in their {key}: {manifest[key]} and {expected[key]}; "
                    "extract all shards from one dataset, with the same parameters and the same code"
                )
        for name, digest in manifest["files"].items():
            other, known = files.setdefault(name, (path, digest))
            if known != digest:
                raise ValueError(f"{path} and {other} have different files {name}: extract one of them again")


def _check_complete(shards: Sequence[tuple[Path, str]]) -> None:
    count = parse_shard(shards[0][1])[1]
    expected = [f"{number}/{count}" for number in range(1, count + 1)]
    if sorted(shard for _, shard in shards) != sorted(expected):
        got = ", ".join(f"{shard} in {path}" for path, shard in shards)
        raise ValueError(f"expected each of the shards {', '.join(expected)} once, got {got}")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy(source, target)
