"""Cluster step merge_collection: run."""

from pathlib import Path

from bifocal.search.collection.merge import merge_collections
from components.cluster.merge_collection.spec import MergeCollectionParams
from runtime.shards import link, read_shards


def run(params: MergeCollectionParams, *, collection: Path, **shards: Path) -> dict[str, float]:
    """Merge all shards into one collection.

    Vectors, regions and images are hard-linked; they are copied if the shards are on another file system.
    """
    manifests = read_shards(shards.values(), "embed")
    merged = merge_collections(list(manifests), collection, link)
    return {
        "items": merged.items,
        "deleted": merged.deleted,
        "rejected": merged.rejected,
        "shards": len(manifests),
    }
