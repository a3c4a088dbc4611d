"""Stage extract_features: run."""

from pathlib import Path
from typing import Any

import torch

from bifocal.backbones.weights.base import Weights
from bifocal.datasets import Dataset, read_dataset
from bifocal.features import FeatureWriter
from bifocal.features.base import FeatureExtractor, FeatureReader, FeatureSource
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.features.extractors import ImageFiles
from bifocal.registry import build
from components.extract_features.spec import EXTRACTORS, WEIGHTS, ExtractFeaturesParams
from runtime.shards import items_of_shard, parse_shard


def run(params: ExtractFeaturesParams, *, dataset: Path, features: Path, shard: str = "1/1") -> dict[str, float]:
    """Write the features of the dataset's images to a store.

    Args:
        shard: ``"2/4"`` for the second quarter of the images only; the step ``merge`` combines shards.

    Returns:
        Images, regions and dimension of the store, and the metrics of a training.

    Raises:
        FileNotFoundError: a file of weights is missing, or cannot be downloaded.
        ValueError: the weights belong to another network, an image cannot be read, or its features are not finite.
    """
    torch.manual_seed(params.seed)
    tables = read_dataset(dataset)
    source, metadata, metrics = _open_source(params, tables, features, sharded=parse_shard(shard)[1] > 1)
    image_ids = list(items_of_shard([str(image_id) for image_id in tables.images["image_id"]], shard))
    writer = FeatureWriter(
        features,
        regions=source.regions,
        dim=source.dim,
        metadata=metadata | source.describe(),
        images_per_file=params.images_per_file,
        shard=parse_shard(shard)[0] - 1,
    )
    written = set(writer.written)
    missing = [image_id for image_id in image_ids if image_id not in written]
    write_features(source.read(missing), writer, total=len(image_ids))
    return {"images": len(image_ids), "regions": source.regions, "dim": source.dim} | metrics


def _open_source(
    params: ExtractFeaturesParams, dataset: Dataset, features: Path, sharded: bool
) -> tuple[FeatureSource, dict[str, Any], dict[str, float]]:
    """Return the source of the features, its metadata, and the metrics of a training."""
    extractor: FeatureExtractor | FeatureReader = build(EXTRACTORS, params.extractor)
    # The path of published files differs between machines, and shards must have equal metadata.
    arguments = {name: value for name, value in params.extractor.arguments.items() if name != "path"}
    metadata: dict[str, Any] = {"extractor": params.extractor.name, "arguments": arguments}
    if isinstance(extractor, FeatureReader):
        return extractor.open(dataset), metadata, {}
    extractor.backbone.network.to("cuda" if torch.cuda.is_available() else "cpu")
    assert params.batch_size is not None  # checked with the parameters
    weights: Weights = build(WEIGHTS, params.weights)
    digest, metrics = weights.prepare(
        extractor, dataset, features, batch_size=params.batch_size, seed=params.seed, sharded=sharded
    )
    if isinstance(extractor, ImageFiles):
        return extractor.sizes(dataset), metadata | {"weights": digest}, metrics
    return NetworkFeatures(extractor, dataset, params.batch_size), metadata | {"weights": digest}, metrics
