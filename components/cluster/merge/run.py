"""How merge_features works."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bifocal.features import FeatureStore
from components.cluster.merge.spec import MergeFeaturesParams
from runtime import artifacts
from runtime.shards import parse_shard

SAME = ("component", "parameters", "inputs", "code")


def run(params: MergeFeaturesParams, *, features: Path, **shards: Path) -> dict[str, float]:
    """Link the files of all ``shards``, artifacts of ``extract_features --shard i/n`` in any order, into one store.

    The files get a second name and are not copied, unless the shards lie on another file system.

    Raises:
        ValueError: a shard is missing, is there twice, or was made with other parameters, inputs or code.
    """
    manifests = {path: artifacts.read_manifest(path) for path in shards.values()}
    _check_complete([(path, manifests[path]["arguments"].get("shard", "1/1")) for path in shards.values()])
    _check_same(manifests)
    for path, manifest in manifests.items():
        for name in manifest["files"]:
            target = features / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # that of a run that was killed, or of another shard: they are equal
            _link(path / name, target)
    store = FeatureStore(features)
    return {"images": len(store), "regions": store.regions, "dim": store.dim, "shards": len(manifests)}


def _check_same(manifests: dict[Path, dict[str, Any]]) -> None:
    first, expected = next(iter(manifests.items()))
    files: dict[str, tuple[Path, str]] = {}
    for path, manifest in manifests.items():
        for key in SAME:
            if manifest[key] != expected[key]:
                raise ValueError(
                    f"{path} and {first} differ in their {key}: {manifest[key]} and {expected[key]}; "
                    "extract all shards from one dataset, with one params.yaml and one version of the code"
                )
        for name, digest in manifest["files"].items():
            former, known = files.setdefault(name, (path, digest))
            if known != digest:
                raise ValueError(f"{path} and {former} hold another {name}: extract one of them again")


def _check_complete(shards: Sequence[tuple[Path, str]]) -> None:
    count = parse_shard(shards[0][1])[1]
    expected = [f"{number}/{count}" for number in range(1, count + 1)]
    if sorted(shard for _, shard in shards) != sorted(expected):
        found = ", ".join(f"{shard} in {path}" for path, shard in shards)
        raise ValueError(f"expected each of the shards {', '.join(expected)} once, got {found}")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy(source, target)
