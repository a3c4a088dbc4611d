"""Cluster step merge: run."""

from pathlib import Path

from bifocal.durable import link
from bifocal.features import FeatureStore
from runtime.shards import check_equal_files, read_shards
from runtime.spec import Params


def run(params: Params, *, features: Path, **shards: Path) -> dict[str, float]:
    """Link the files of all shards into one feature store, or copy them from another file
    system."""
    manifests = read_shards(shards.values(), "extract")
    check_equal_files(manifests, "extract")
    for path, manifest in manifests.items():
        for name in manifest["files"]:
            link(path / name, features / name)
    store = FeatureStore(features)
    return {
        "images": len(store),
        "regions": store.regions,
        "dim": store.dim,
        "shards": len(manifests),
    }
