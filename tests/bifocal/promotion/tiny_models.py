"""Exported models of set quality: images of one color each, whose captions name the color."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
from numpy.typing import NDArray
from onnx import TensorProto, helper
from PIL import Image

from bifocal.datasets import Corpus, Dataset, read_dataset
from bifocal.datasets.base import CaptionEntry, ImageEntry
from bifocal.evaluation.rank_tables import EVALUATED_IMAGES, RANKS, TRAINING_IMAGES, training_hashes
from bifocal.promotion.acceptance import Assessment, Criteria, assess
from bifocal.promotion.exported_model import ExportedModel
from bifocal.promotion.looks import Look
from bifocal.text import Vocabulary
from tests.bifocal.datasets.small import write_copies
from tests.bifocal.graphs import save_graph, tensor

TRAIN, CAPTIONS, SIDE = 4, 2, 6
CRITERIA = Criteria(
    recall_at=[1, 5, 10],
    min_images=40,
    min_gain=1.0,
    false_promotion_rate=0.05,
    looks=10,
    max_drops={"caption_retrieval.R@1": 5.0, "image_retrieval.R@1": 5.0, "pointing": 5.0},
    floors={"recall_sum": 50.0},
    confidence=0.95,
    seed=1,
    max_near_duplicates=0.02,
    parity=1e-4,
    backbone_parity=1e-3,
    max_latency_ratio=100.0,
    size_mb=1.0,
)


def colors(count: int) -> NDArray[np.uint8]:
    """Return distinct colors (count, 3), 0 to 255, in all directions from gray."""
    directions = np.random.default_rng(3).normal(size=(count, 3))
    shown: NDArray[np.uint8] = np.rint(
        127.5 + 120 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    ).astype(np.uint8)
    return shown


def write_colors(folder: Path, test: int, copied: Sequence[int] = ()) -> Dataset:
    """Write a dataset of one-color images, ``TRAIN`` of them for training, the rest for test.

    Args:
        copied: test images whose file is a copy of the first training image.
    """
    source = folder.with_name(folder.name + "-source")
    source.mkdir(parents=True)
    folder.mkdir(parents=True, exist_ok=True)
    images, captions = [], []
    for number, color in enumerate(colors(TRAIN + test)):
        name = f"{number}.png"
        shown = colors(TRAIN)[0] if number - TRAIN in copied else color
        Image.new("RGB", (SIDE, SIDE), tuple(map(int, shown))).save(source / name)
        images.append(ImageEntry(str(number), name, "train" if number < TRAIN else "test"))
        captions += [
            CaptionEntry(CAPTIONS * number + n, str(number), f"word{number}")
            for n in range(CAPTIONS)
        ]
    corpus = Corpus(source, images, captions)
    write_copies(folder, corpus)
    return read_dataset(folder)


def write_model(
    folder: Path, words: int, noise: float, seed: int = 0, *, of_features: bool = False
) -> None:
    """Write the graphs of a model: a color and its word have the same embedding, up to ``noise`` of
    the word's.

    Args:
        of_features: whether images are given by features (regions, 3), the color less gray, instead
            of pixels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = np.zeros((words + 2, 3), np.float32)
    table[2:] = colors(words) - 127.5
    table += noise * 120 * np.random.default_rng(seed).normal(size=table.shape).astype(np.float32)
    inputs = [tensor(name, kind=TensorProto.INT64) for name in ("values", "lengths")]
    first_word = [
        helper.make_node("Gather", ["table", "values"], ["vectors"]),
        helper.make_node("ReduceMean", ["vectors", "axes"], ["mean"], keepdims=0),
    ]
    _save(folder / "text_encoder.onnx", inputs, first_word, {"table": table, "axes": [1]})
    if of_features:
        regions = [tensor("features", [None, None, 3]), tensor("mask", 2, TensorProto.BOOL)]
        mean = helper.make_node("ReduceMean", ["features", "axes"], ["mean"], keepdims=0)
        _save(folder / "image_encoder.onnx", regions, [mean], {"axes": [1]})
    else:
        pixels = [tensor("pixels", [None, 3, SIDE, SIDE])]
        color = [
            helper.make_node("ReduceMean", ["pixels", "axes"], ["color"], keepdims=0),
            helper.make_node("Sub", ["color", "gray"], ["mean"]),
        ]
        _save(folder / "image_encoder.onnx", pixels, color, {"axes": [2, 3], "gray": 127.5})
        (folder / "preprocessing.json").write_text(
            f'{{"size": {SIDE}, "interpolation": "bilinear"}}'
        )
    Vocabulary([f"word{number}" for number in range(words)]).save(folder / Vocabulary.FILE)
    parity = {"branch": ["text_encoder", "backbone"], "difference": [1e-7, 2e-4]}
    pd.DataFrame(parity).to_csv(folder / "parity.csv", index=False)


def write_evaluation(folder: Path, dataset: Dataset, ranks: pd.DataFrame) -> None:
    """Write the tables of an evaluation on the test split."""
    folder.mkdir(parents=True, exist_ok=True)
    images = dataset.split("test").images
    ranks.to_parquet(folder / RANKS)
    pd.DataFrame({"content": sorted(training_hashes(dataset))}, dtype=str).to_parquet(
        folder / TRAINING_IMAGES
    )
    known = {"image_id": images["image_id"], "content": images["sha256"], "features": "none"}
    pd.DataFrame(known).to_parquet(folder / EVALUATED_IMAGES)


def pointing(dataset: Dataset, accuracy: float) -> pd.DataFrame:
    """Return ranks of the pointing game with one phrase per test image; the first ones are hits."""
    ids = dataset.split("test").images["image_id"].tolist()
    misses = [float(number >= accuracy * len(ids)) for number in range(len(ids))]
    keys = {
        "direction": "pointing",
        "query": ids,
        "image_id": ids,
        "content": ids,
        "protocol": "boxes",
    }
    return pd.DataFrame(keys | {"rank": misses})


def tiny_model(
    folder: Path, dataset: Dataset, noise: float, *, of_features: bool = False
) -> ExportedModel:
    """Write and read a model that was evaluated on the test split of ``dataset``, with a pointing
    accuracy of 50 %."""
    write_model(folder / "onnx", len(dataset.images), noise, of_features=of_features)
    write_evaluation(folder / "evaluation", dataset, pointing(dataset, 0.5))
    return ExportedModel.read(folder / "onnx", folder / "evaluation")


def decide(
    dataset: Dataset, *models: ExportedModel, looks: tuple[Look, ...] = (), **changes: Any
) -> Assessment:
    """Assess the candidate, and the model that it would replace if there is one, by ``CRITERIA``
    with ``changes``."""
    stores = [None for _ in models]
    return assess(
        dataset, models, stores, replace(CRITERIA, **changes), names=("2", "1"), looks=looks
    )


def _save(
    file: Path,
    inputs: list[onnx.ValueInfoProto],
    nodes: list[onnx.NodeProto],
    constants: dict[str, Any],
) -> None:
    nodes = [*nodes, helper.make_node("LpNormalization", ["mean"], ["embeddings"], axis=1, p=2)]
    # Every declared input must be used, as in the real graphs.
    nodes += [helper.make_node("Shape", [value.name], ["unused"]) for value in inputs[1:]]
    save_graph(file, nodes, inputs, [tensor("embeddings", [None, 3])], constants)
