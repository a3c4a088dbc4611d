"""What extract_features learns before it extracts, and keeps beside the store."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bifocal.backbones.state import CARRIED, load_weights, read_safetensors
from bifocal.backbones.whitening import Whitening, learn_whitening
from bifocal.checkpoint import read_tensors, write_tensors
from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor, GridExtractor
from bifocal.features.extraction import NetworkFeatures
from bifocal.features.extractors import RMAC, Grid, Pixels, Proposals
from bifocal.pretraining.image_classifier import pretrain_classifier
from bifocal.pretraining.labeled_images import class_folders, labels_of
from bifocal.pretraining.phrase_words import pretrain_on_phrases
from components.extract_features.spec import ClassifierParams, ExtractFeaturesParams

PARTS = ("whitening.mean", "whitening.projection")


def prepare(
    kind: FeatureExtractor, params: ExtractFeaturesParams, tables: Dataset, features: Path, alone: bool
) -> tuple[str, dict[str, float]]:
    """Give ``kind`` its weights: from a file, from the library, or trained here.

    What was learnt, and what an encoder over pixels starts from, is kept in ``features``; a run that was killed after
    it does not learn again.

    Args:
        alone: whether this run extracts all images; the shards of a divided one learn nothing.

    Returns:
        SHA-256 of the weights, and how well was learnt.

    Raises:
        ValueError: the kind does not learn what is asked, or something is to be learnt once for each shard.
    """
    carried = features / CARRIED
    learnt_before = carried.is_file()
    learns = [name for name in ("pretraining", "classifier") if getattr(params, name) is not None]
    whitened = params.weights is not None and PARTS[0] in read_safetensors(params.weights)
    if isinstance(kind, RMAC) and not whitened:
        learns.append("whitening")
    if learns and not alone:
        raise ValueError(
            f"every shard would learn a {learns[0]} of its own. Extract once without --shard, on a small dataset if "
            f"need be, then set extract_features.weights to the {CARRIED} of that artifact, and pretraining and "
            "classifier to null"
        )
    if learnt_before and (learns or not isinstance(kind, GridExtractor)):
        return _restore(kind, carried)
    figures: dict[str, float] = {}
    beside: dict[str, Tensor] = {}
    if params.pretraining is not None:
        cells = kind.grid() if isinstance(kind, Proposals) else kind
        if not isinstance(cells, Grid):
            raise ValueError(
                "extract_features.pretraining trains the backbone of Grid or Proposals, not of "
                f"{type(kind).__name__}: set it to null"
            )
        checkpoints = features / "checkpoints"
        figures = pretrain_on_phrases(cells, tables, **dict(params.pretraining), checkpoints=checkpoints, seed=params.seed)
        write_tensors(carried, kind.backbone.network.state_dict(), figures)
        return _restore(kind, carried)
    if params.classifier is None or not params.classifier.random_start:
        digest = load_weights(kind.backbone, params.weights)
    if isinstance(kind, Pixels):
        if params.weights is not None:
            beside = _beside(params.weights)
        if params.classifier is not None:
            beside, figures = _classifier(kind, params.classifier, params, tables, features)
    elif params.classifier is not None:
        raise ValueError(f"extract_features.classifier trains the backbone of Pixels, not of {type(kind).__name__}")
    elif isinstance(kind, RMAC):
        found = _beside(params.weights) if params.weights is not None and whitened else _whitening(kind, params, tables)
        beside = dict(zip(PARTS, (found[name] for name in PARTS), strict=True))
    else:
        if isinstance(kind, GridExtractor):  # for export_onnx, which makes a graph of the backbone
            write_tensors(carried, kind.backbone.network.state_dict(), figures)
        return digest, figures
    write_tensors(carried, kind.backbone.network.state_dict() | beside, figures)
    return _restore(kind, carried)


def _restore(kind: FeatureExtractor, carried: Path) -> tuple[str, dict[str, float]]:
    digest = load_weights(kind.backbone, carried)
    tensors, figures = read_tensors(carried)
    if isinstance(kind, RMAC):
        kind.whitening = Whitening(*(tensors[name] for name in PARTS))
        kind.whitening = Whitening(kind.whitening.mean, kind.whitening.projection[: kind.dim])
    return digest, figures


def _beside(path: Path) -> dict[str, Tensor]:
    found = read_safetensors(path)
    return {name: tensor for name, tensor in found.items() if name.split(".")[0] in ("adaptation", "whitening")}


def _whitening(kind: RMAC, params: ExtractFeaturesParams, tables: Dataset) -> dict[str, Tensor]:
    train = [str(image_id) for image_id in tables.split("train").images["image_id"]]
    drawn = np.random.default_rng(params.seed).permutation(len(train))[: kind.learnt_on]
    batches = NetworkFeatures(kind, tables, params.batch_size).batches([train[row] for row in sorted(drawn)])

    def regions() -> Iterator[Tensor]:
        for images in batches:
            with torch.inference_mode():
                yield torch.cat(kind.region_vectors(images))

    return dict(zip(PARTS, learn_whitening(regions(), kind.dim), strict=True))


def _classifier(
    kind: Pixels, classifier: ClassifierParams, params: ExtractFeaturesParams, tables: Dataset, features: Path
) -> tuple[dict[str, Tensor], dict[str, float]]:
    if classifier.task is not None:
        train = labels_of(tables.split("train"), classifier.task)
        validation = labels_of(tables.split("val"), classifier.task, train.names)
    elif params.source is not None:
        train = class_folders(params.source / "train")
        validation = class_folders(params.source / "val", train.names)
    else:
        raise ValueError("extract_features.classifier: set task to one of the dataset's, or source to class folders")
    values = {name: value for name, value in classifier if name not in ("task", "random_start")}
    return pretrain_classifier(
        kind, train, validation, **values, checkpoints=features / "checkpoints", seed=params.seed
    )
