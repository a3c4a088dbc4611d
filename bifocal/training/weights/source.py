"""Where the features of a dataset come from: a network with its weights, or published files."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor, FeatureReader, FeatureSource
from bifocal.features.extraction import NetworkFeatures
from bifocal.features.extractors import ImageFiles
from bifocal.registry import build, split
from bifocal.training.weights.base import Weights

EXTRACTORS, WEIGHTS = "bifocal.features.extractors", "bifocal.training.weights"


class OpenedSource(NamedTuple):
    """A source, the metadata of its features for the feature store, and the metrics of a
    training."""

    source: FeatureSource
    metadata: dict[str, Any]
    metrics: dict[str, float]


def open_source(
    extractor: Any,
    weights: Any | None,
    dataset: Dataset,
    directory: Path,
    *,
    batch_size: int | None,
    seed: int,
    sharded: bool = False,
) -> OpenedSource:
    """Build an extractor and its weights, which may train and are kept in ``directory``; or open
    published files."""
    torch.manual_seed(seed)
    name, arguments = split(extractor)
    reader: FeatureExtractor | FeatureReader = build(EXTRACTORS, extractor)
    # The path of published files differs between machines, and shards must have equal metadata.
    metadata = {
        "extractor": name,
        "arguments": {key: value for key, value in arguments.items() if key != "path"},
    }
    if isinstance(reader, FeatureReader):
        source, metrics = reader.open(dataset), dict[str, float]()
    else:
        assert batch_size is not None, "a network needs the number of images per forward pass"
        reader.backbone.network.to("cuda" if torch.cuda.is_available() else "cpu")
        prepared: Weights = build(WEIGHTS, weights)
        if sharded and not prepared.shardable:
            raise ValueError(
                "every shard would learn a network of its own: extract once without "
                f"shards, on a small dataset if necessary, then load the {WEIGHTS_FILE} of that "
                "feature directory with FromFile"
            )
        metadata["weights"], metrics = prepared.prepare(reader, dataset, directory, seed)
        if isinstance(reader, ImageFiles):
            source = reader.sizes(dataset)
        else:
            source = NetworkFeatures(reader, dataset, batch_size)
    return OpenedSource(source, metadata | source.describe(), metrics)
