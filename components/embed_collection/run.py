"""Stage embed_collection: run."""

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bifocal.datasets import read_dataset
from bifocal.onnx.encoders import scores_pairs
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.embedding import CollectionEmbedder
from bifocal.search.collection.format import DESCRIPTION
from bifocal.search.collection.presence import with_unknown
from bifocal.search.collection.sources import dataset_source, files_source
from components.embed_collection.listing import read_source, write_source
from components.embed_collection.spec import EmbedCollectionParams
from runtime.artifacts import artifact_hash, read_manifest
from runtime.s3.remote_files import address_of_copy
from runtime.s3.remote_images import remote_source
from runtime.shards import parse_shard

if TYPE_CHECKING:
    from bifocal.features import FeatureStore

PLACE = "../dataset"
"""Place of the dataset relative to the collection: with a run's path, a release of equal images
would be a new one."""


def run(
    params: EmbedCollectionParams,
    *,
    dataset: Path,
    onnx: Path,
    collection: Path,
    features: Path | None = None,
    previous: Path | None = None,
    listing: Path | None = None,
    shard: str = "1/1",
) -> dict[str, float]:
    """Write the collection and return its counts and rates; ``shard`` is ``"2/4"`` for only the
    second quarter of a ``listing``, which shard ``"0/4"`` writes.

    In the flow ``refresh``, ``features`` is None, because another run trained the model. In a flow,
    ``previous``, the collection of the champion's release, replaces ``params.previous``.
    """
    if scores_pairs(onnx):
        raise ValueError(
            "the model is of late interaction: it compares the words of a query with all cells "
            "of an image, so no single vector of an image can be stored. Set pipeline: "
            "late_interaction, which ends without a collection, or train a dual encoder such "
            "as SMILE or BEAN"
        )
    ids = None
    if listing is not None:
        source = read_source(listing, collection, shard, params.source, dataset)
        ids = pa.array([entry.item_id for entry in source.entries], pa.string())
    elif params.source is None:
        source = dataset_source(dataset, read_dataset(dataset), PLACE)
    elif address := address_of_copy(params.source):
        source = remote_source(address, params.source, collection)
    else:
        source = files_source(params.source, collection)
    known = previous or params.previous
    if previous is not None and not (previous / DESCRIPTION).is_file():
        known = None  # the flow retrain before the first champion
    former = None if known is None else Collection(known, ids)
    if listing is None:
        source = with_unknown(source, former, prune=params.prune)
    number, count = parse_shard(shard, 0)
    if number == 0:
        write_source(source, collection, count)
        return {"items": len(source.entries)}
    # Opened when the model needs it: a model of images does not.
    stored = (
        None
        if features is None or params.source is not None
        else cache(partial(_open_features, features))
    )
    embedder = CollectionEmbedder(
        onnx,
        params.name,
        source,
        previous=former,
        features=None if stored is None else lambda image_ids: stored().unpadded(image_ids),
        same_features=features is not None
        and read_manifest(onnx).get("inputs", {}).get("features") == artifact_hash(features),
        batch_size=params.batch_size,
        items_per_shard=params.items_per_shard,
        max_pixels=params.max_pixels,
        max_rejected_fraction=params.max_rejected_fraction,
        regions=params.regions,
        feature_bytes=params.feature_bytes,
    )
    return embedder.write(collection)


def _open_features(directory: Path) -> "FeatureStore":
    from bifocal.features import FeatureStore  # torch takes 500 MB, which images do not need

    return FeatureStore(directory)
