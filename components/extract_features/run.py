"""Act of the stage ``extract_features``."""

from pathlib import Path
from typing import Any

import torch

from bifocal.checkpoint import read_tensors, write_tensors
from bifocal.datasets import Dataset, read_dataset
from bifocal.features import FeatureWriter, Grid
from bifocal.features.base import PixelFeatures, RegionSource, StoredFeatures
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.features.pretraining import pretrain
from bifocal.features.weights import load_weights
from bifocal.registry import build
from components import shards
from components.extract_features.spec import ExtractFeaturesParams, PretrainingParams


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
    number, count = shards.parse(shard)
    image_ids = list(shards.share([str(image_id) for image_id in tables.images["image_id"]], shard))
    if count > 1 and params.pretraining is not None:
        raise ValueError(
            f"--shard {shard}: every shard would train a backbone of its own. Extract once without --shard, then set "
            "extract_features.weights to the weights.safetensors of that artifact, and pretraining to null"
        )
    kind: PixelFeatures | StoredFeatures = build("bifocal.features", params.features.name, **params.features.arguments)
    figures: dict[str, float] = {}
    metadata: dict[str, Any] = {"kind": params.features.name}
    origin: RegionSource
    if isinstance(kind, StoredFeatures):
        origin = kind.open(tables, params.source)
    else:
        kind.backbone.network.to("cuda" if torch.cuda.is_available() else "cpu")
        weights = params.weights
        if params.pretraining is not None:
            weights, figures = _train_here(params.pretraining, kind, tables, features, params.seed)
        origin = NetworkFeatures(kind, tables, params.batch_size)
        metadata["weights"] = load_weights(kind.backbone, weights)
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


def _train_here(
    pretraining: PretrainingParams, kind: PixelFeatures, tables: Dataset, features: Path, seed: int
) -> tuple[Path, dict[str, float]]:
    if not isinstance(kind, Grid):
        raise ValueError(f"extract_features.pretraining trains the backbone of Grid, not of {type(kind).__name__}")
    path = features / "weights.safetensors"
    if not path.is_file():
        figures = pretrain(kind, tables, **dict(pretraining), checkpoints=features / "checkpoints", seed=seed)
        write_tensors(path, kind.backbone.network.state_dict(), figures)
    return path, read_tensors(path)[1]
