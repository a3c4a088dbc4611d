"""Cluster step merge_collection: run."""

from pathlib import Path

from bifocal.search.collection.collection import merge_collections
from runtime.shards import read_shards
from runtime.spec import Params


def run(params: Params, *, collection: Path, **shards: Path) -> dict[str, float]:
    """Merge all shards into one collection; link their files, or copy them from another file
    system."""
    manifests = read_shards(shards.values(), "embed")
    merged = merge_collections(list(manifests), collection)
    return {
        "items": merged.items,
        "deleted": merged.deleted,
        "rejected": merged.rejected,
        "shards": len(manifests),
    }
