"""Cluster step merge: run."""

from pathlib import Path

from bifocal.features import FeatureStore
from components.cluster.merge.spec import MergeParams
from runtime.shards import check_equal_files, link, read_shards


def run(params: MergeParams, *, features: Path, **shards: Path) -> dict[str, float]:
    """Link the files of all shards into one feature store.

    Files are hard-linked; they are copied if the shards are on another file system.
    """
    manifests = read_shards(shards.values(), "extract")
    check_equal_files(manifests, "extract")
    for path, manifest in manifests.items():
        for name in manifest["files"]:
            link(path / name, features / name)
    store = FeatureStore(features)
    return {"images": len(store), "regions": store.regions, "dim": store.dim, "shards": len(manifests)}
