"""Act of the stage ``extract_features``."""

from pathlib import Path
from typing import Any

import torch

from bifocal.datasets import read_dataset
from bifocal.features import FeatureWriter
from bifocal.features.base import FeatureExtractor, FeatureReader, FeatureSource
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.registry import build
from components.extract_features.learning import prepare
from components.extract_features.spec import ExtractFeaturesParams
from runtime import shards


def run(params: ExtractFeaturesParams, *, dataset: Path, features: Path, shard: str = "1/1") -> dict[str, float]:
    """Write the feature store of the dataset's images; returns its counts, and how well the backbone learnt.

    Args:
        shard: ``"2/4"`` for the second quarter of the images alone; ``merge_features`` puts the shards together.

    Raises:
        FileNotFoundError: weights are not where they should be.
        ValueError: the weights do not fit, an image cannot be read, or its features are not finite.
    """
    torch.manual_seed(params.seed)
    tables = read_dataset(dataset)
    number, count = shards.parse_shard(shard)
    image_ids = list(shards.items_of_shard([str(image_id) for image_id in tables.images["image_id"]], shard))
    kind: FeatureExtractor | FeatureReader = build("bifocal.features.extractors", params.features)
    figures: dict[str, float] = {}
    metadata: dict[str, Any] = {"kind": params.features.name, "arguments": params.features.arguments}
    origin: FeatureSource
    if isinstance(kind, FeatureReader):
        origin = kind.open(tables, params.source)
    else:
        kind.backbone.network.to("cuda" if torch.cuda.is_available() else "cpu")
        metadata["weights"], figures = prepare(kind, params, tables, features, alone=count == 1)
        origin = NetworkFeatures(kind, tables, params.batch_size)
    writer = FeatureWriter(
        features,
        regions=origin.regions,
        dim=origin.dim,
        metadata=metadata | origin.describe(),
        shard_size=params.shard_size,
        part=number - 1,
    )
    written = set(writer.written)
    missing = [image_id for image_id in image_ids if image_id not in written]
    write_features(origin.read(missing), writer, total=len(image_ids))
    return {"images": len(image_ids), "regions": origin.regions, "dim": origin.dim} | figures
