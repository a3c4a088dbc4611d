"""Training on phrases and boxes through the stage train_embedding."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.metrics import box_iou
from bifocal.models import load_model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training.batches import PhraseBoxes
from bifocal.training.batches.base import TrainingInputs
from bifocal.training.pairs import PhraseBoxPairs
from bifocal.training.validators.phrases import PhraseValidator
from components.train_embedding.run import run
from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters
from runtime.parameters import ParameterError
from tests.components.train_embedding.conftest import Scened

ROOT = Path(__file__).parents[3]
SHORTER: dict[str, Any] = {
    "dim": 16,
    "image_encoder": {"name": "LinearEncoder"},
    "text_encoder": {"name": "BagOfWordsEncoder"},
    "epochs": 3,
    "batch_size": 64,
    "learning_rate": 0.02,
    "decay_after": [],
    "precision": "float32",
}
STRUCTURE: dict[str, Any] = {"name": "StructurePreservingLoss", "visual_weight": 0.0, "textual_weight": 0.0}


def validated(epochs: int, rate: float = 0.02, **changes: Any) -> TrainEmbeddingParams:
    recipe = ROOT / "recipes" / "scenes/structure_preserving_phrases.yaml"
    values = parameters.load(ROOT / "params.yaml", [recipe])["train_embedding"]
    tuning = {"epochs": epochs, "loss": STRUCTURE, "learning_rate": rate, "hard_boxes": 20, "drawn": 3}
    phrases = {"boxes_each": 10, "fine_tuning": tuning if epochs else None}
    section = parameters.merge(values, SHORTER | {"phrases": phrases} | changes)
    params = parameters.validate({"seed": 0, "train_embedding": section}, [COMPONENT])["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    return params


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Nine cells of each scene are its boxes, and its objects' own; a cell is what lies in it, with noise."""
    paths = scened(60, 20)
    tables = read_dataset(paths["dataset"])
    random = np.random.default_rng(0)
    words = sorted({word for text in tables.phrases["phrase"] for word in text.split()})
    directions = {word: random.normal(size=24) for word in words}
    cells = np.array([[x, y, x + 1, y + 1] for y in range(3) for x in range(3)]) * 64 / 3
    with FeatureWriter(paths["features"], regions=24, dim=24, metadata={}, images_per_file=64) as writer:
        for image_id, own in tables.phrases.groupby("image_id"):
            boxes = np.concatenate([cells, *own["boxes"]])
            boxes = np.unique(boxes, axis=0)[:24]
            features = 2.0 * random.normal(size=(len(boxes), 24))
            for text, truth in zip(own["phrase"], own["boxes"], strict=True):
                overlap = box_iou(boxes, np.asarray(truth, np.float64)).max(axis=1)
                features += overlap[:, None] * sum(directions[word] for word in text.split())
            writer.add(str(image_id), features.astype(np.float32), (boxes / 64).astype(np.float32))
    return paths


def test_both_trainings_are_one_history_and_the_best_is_kept(artifacts: dict[str, Path], tmp_path: Path) -> None:
    figures = run(validated(epochs=2), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert history["epoch"].tolist() == [1, 2, 3, 4, 5]
    assert history["validation"].tolist() == history["phrase_R@1"].tolist()
    best = history["phrase_R@1"].max()
    assert figures == {"best_epoch": history["phrase_R@1"].idxmax() + 1, "validation_phrase_R@1": pytest.approx(best)}
    val = read_dataset(artifacts["dataset"]).split("val")
    judge = PhraseValidator(
        PhraseBoxPairs(val, FeatureStore(artifacts["features"]), load_vectorizer(artifacts["text"]))
    )
    assert judge(load_model(tmp_path))["phrase_R@1"] == pytest.approx(best)
    assert best > 2 * 100 / 24


def test_fine_tuning_that_harms_is_not_kept(artifacts: dict[str, Path], tmp_path: Path) -> None:
    alone, both = tmp_path / "alone", tmp_path / "both"
    for folder, params in ((alone, validated(epochs=0)), (both, validated(epochs=1, rate=1e4))):
        folder.mkdir()
        run(params, **artifacts, embedding=folder)
    history = pd.read_csv(both / "history.csv")["phrase_R@1"]
    assert history.iloc[3] < history.iloc[:3].max()
    first, second = (load_model(folder).state_dict() for folder in (alone, both))
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=0, atol=0)


def test_what_cannot_be_is_named(artifacts: dict[str, Path]) -> None:
    tuning = {"epochs": 1, "learning_rate": 0.1, "hard_boxes": 1, "drawn": 1, "loss": {"name": "StructurLoss"}}
    with pytest.raises(ParameterError, match=r"fine_tuning\.loss: bifocal\.losses has no 'StructurLoss'"):
        validated(0, phrases={"boxes_each": 1, "fine_tuning": tuning})
    features, text = FeatureStore(artifacts["features"]), artifacts["text"]
    inputs = TrainingInputs(read_dataset(artifacts["dataset"]), features, TextStore(text), load_vectorizer(text))
    with pytest.raises(TypeError, match="Identity has no single vector for an image: use a TwoBranchModel"):
        PhraseBoxes().prepare(inputs, model=nn.Identity(), loss=nn.Identity(), seed=0)
