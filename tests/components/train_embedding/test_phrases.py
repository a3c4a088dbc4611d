"""Training on phrases and boxes through the stage train_embedding."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.metrics import box_iou
from bifocal.models import load_model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training.initialization.cca import phrase_blocks
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phrase_pairs import PhraseBoxPairs
from bifocal.training.validators import phrase_recall
from components.train_embedding.run import run
from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters
from tests.components.train_embedding.conftest import Scened

ROOT = Path(__file__).parents[3]
LINEAR = {
    "name": "TwoBranchModel",
    "dim": 8,
    "image_encoder": "LinearEncoder",
    "text_encoder": "LinearEncoder",
}
MODEL = {
    "name": "TwoBranchModel",
    "dim": 16,
    "image_encoder": "LinearEncoder",
    "text_encoder": "BagOfWordsEncoder",
}


def validated(epochs: list[int]) -> TrainEmbeddingParams:
    """The recipe with a small model and as many phases as ``epochs``."""
    recipe = ROOT / "recipes" / "scenes/structure_preserving_phrases.yaml"
    values = parameters.load(ROOT / "params.yaml", [recipe])["train_embedding"]
    batches = ({}, {"negatives_per_phrase": 3, "max_negatives": 20})
    phases = [
        phase
        | {
            "batches": {"name": "PhraseBoxes", "batch_size": 64, **batches[index]},
            "epochs": epochs[index],
            "learning_rate": 0.02,
            "schedule": "Constant",
        }
        for index, phase in enumerate(values["phases"][: len(epochs)])
    ]
    section = values | {"model": MODEL, "phases": phases, "precision": "float32"}
    params = parameters.validate({"seed": 0, "train_embedding": section}, [COMPONENT])[
        "train_embedding"
    ]
    assert isinstance(params, TrainEmbeddingParams)
    return params


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Boxes of each scene: nine cells and its objects' boxes; a feature is the box's content, with
    noise."""
    paths = scened(60, 20)
    tables = read_dataset(paths["dataset"])
    random = np.random.default_rng(0)
    words = sorted({word for text in tables.phrases["phrase"] for word in text.split()})
    directions = {word: random.normal(size=24) for word in words}
    cells = np.array([[x, y, x + 1, y + 1] for y in range(3) for x in range(3)]) * 64 / 3
    metadata = {"truth_regions": 16}
    with FeatureWriter(
        paths["features"], regions=40, dim=24, metadata=metadata, images_per_file=64
    ) as writer:
        for image_id, rows in tables.phrases.groupby("image_id"):
            true = np.unique(np.concatenate(rows["boxes"].tolist()), axis=0)[:16]
            proposals = np.unique(np.concatenate([cells, true]), axis=0)[:24]
            boxes = np.concatenate([proposals, true])
            features = 2.0 * random.normal(size=(len(boxes), 24))
            for text, truth in zip(rows["phrase"], rows["boxes"], strict=True):
                overlap = box_iou(boxes, np.asarray(truth, np.float64)).max(axis=1)
                features += overlap[:, None] * sum(directions[word] for word in text.split())
            writer.add(
                str(image_id),
                features.astype(np.float32),
                (boxes / 64).astype(np.float32),
                truth=len(true),
            )
    return paths


def test_two_phases_are_one_history_and_the_best_weights_are_kept(
    artifacts: dict[str, Path], tmp_path: Path
) -> None:
    metrics = run(validated([3, 2]), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert history["epoch"].tolist() == [1, 2, 3, 4, 5]
    assert history["phase"].tolist() == [0, 0, 0, 1, 1]
    best = history["phrase_R@1"].max()
    assert metrics == {
        "best_epoch": history["phrase_R@1"].idxmax() + 1,
        "validation_phrase_R@1": pytest.approx(best),
    }
    val = read_dataset(artifacts["dataset"]).split("val")
    vectorizer = load_vectorizer(artifacts["text"])
    pairs = PhraseBoxPairs(val, FeatureStore(artifacts["features"]), vectorizer)
    assert phrase_recall(pairs, load_model(tmp_path))["phrase_R@1"] == pytest.approx(best)
    assert best > 2 * 100 / 24


def test_correlation_analysis_of_phrases_localizes_without_a_training(
    artifacts: dict[str, Path], tmp_path: Path
) -> None:
    changes = {
        "model": LINEAR,
        "initialization": {"name": "PhraseCCA", "regularization": 0.1},
        "phases": [],
    }
    section = validated([1]).model_dump() | changes
    values = {"seed": 0, "train_embedding": section}
    params = parameters.validate(values, [COMPONENT])["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    metrics = run(params, **artifacts, embedding=tmp_path)
    inputs = TrainingInputs(
        read_dataset(artifacts["dataset"]),
        FeatureStore(artifacts["features"]),
        TextStore(artifacts["text"]),
        load_vectorizer(artifacts["text"]),
    )
    blocks = list(phrase_blocks(inputs.phrases("train"), inputs.phrases("train").resampled(10)))
    x = torch.cat([block.images[block.image_of_text] for block in blocks]).double()
    y = torch.cat([block.texts for block in blocks]).double()
    assert metrics["pairs"] == len(y) == len(inputs.phrases("train").resampled(10))
    # Correlations of the projected pairs equal the fit's, which the ridge lowers.
    model = load_model(tmp_path).double()
    left, right = (
        model.image_encoder.projection(x).detach(),
        model.text_encoder.projection(y).detach(),
    )
    both = torch.corrcoef(torch.cat([left, right], dim=1).T)
    correlations = both.diagonal(offset=left.shape[1])
    # No other pair of directions has a higher correlation than the first one of CCA.
    drawn = torch.randn(x.shape[1], 1, dtype=x.dtype), torch.randn(y.shape[1], 1, dtype=y.dtype)
    other = torch.corrcoef(torch.cat([x @ drawn[0], y @ drawn[1]], dim=1).T)[0, 1]
    assert correlations[0] > other.abs()
    assert phrase_recall(inputs.phrases("val"), load_model(tmp_path))["phrase_R@1"] > 3 * 100 / 24
