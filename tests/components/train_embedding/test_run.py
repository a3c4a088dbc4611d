"""The stage train_embedding on small scenes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset, read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.metrics import chance_report
from bifocal.models import load_model
from bifocal.pretraining.sorter import train_sorter
from bifocal.sorters import LSTMSorter, save_sorter
from bifocal.training.schedules import Step
from components.train_embedding.run import run
from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters
from runtime.parameters import ParameterError
from tests.components.train_embedding.conftest import Scened

SECTION: dict[str, Any] = {
    "dim": 32,
    "image_encoder": {"name": "SMILEEncoder"},
    "text_encoder": {"name": "BagOfWordsEncoder"},
    "fine_tune_words": True,
    "loss": {"name": "InfoNCELoss"},
    "epochs": 12,
    "batch_size": 16,
    "captions_per_image": 1,
    "distinct_images": True,
    "precision": "float32",
    "micro_batch": None,
    "gradient_checkpointing": False,
    "optimizer": {"name": "Adam"},
    "learning_rate": 0.01,
    "decay_after": [8],
    "decay_factor": 0.5,
    "clip_norm": 2.0,
    "average": 0.0,
    "train_from": {},
    "checkpoint_every": 1000,
}


def validated(**changes: Any) -> TrainEmbeddingParams:
    values = parameters.load(Path(__file__).parents[3] / "params.yaml")["train_embedding"]
    sections = parameters.validate({"seed": 0, "train_embedding": values | SECTION | changes}, [COMPONENT])
    params = sections["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    return params


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Scenes, features that hold which words their captions have, and a sorter pretrained for 16 scores."""
    paths = scened(160, 20)
    captions = read_dataset(paths["dataset"]).captions
    words = sorted({word for text in captions["text"] for word in text.split()})
    random = np.random.default_rng(0)
    directions = {word: random.normal(size=24) for word in words}
    with FeatureWriter(paths["features"], regions=2, dim=24, metadata={}, images_per_file=64) as writer:
        for image_id, own in captions.groupby("image_id"):
            seen = sum(directions[word] for word in set(" ".join(own["text"]).split()))
            writer.add(str(image_id), np.stack([seen, 0.1 * random.normal(size=24)]).astype(np.float32))
    arguments = {"hidden": 8, "layers": 1}
    sorter = LSTMSorter(16, **arguments)
    train_sorter(
        sorter,
        length=16,
        batch_size=64,
        learning_rate=0.01,
        schedule=Step(3, 0.5),
        vectors_per_epoch=1280,
        epochs=3,
        patience=9,
        tolerance=0.01,
        seed=0,
        checkpoints=paths["sorter"] / "checkpoints",
    )
    save_sorter(paths["sorter"], sorter, arguments)
    return paths


def chance(tables: Dataset) -> float:
    rows = {image: row for row, image in enumerate(tables.images["image_id"])}
    report = chance_report(torch.tensor([rows[image] for image in tables.captions["image_id"]]), (1, 5, 10))
    return sum(values[f"R@{k}"] for values in report.values() for k in (1, 5, 10))


@pytest.mark.parametrize(
    "loss",
    [
        {"name": "RecallLoss", "fine_tune": 0.5, "auxiliary_weight": 1.0, "auxiliary_steps": 30},
        {"name": "RecallLoss", "surrogate": "log_rank", "auxiliary_weight": 1.0},
    ],
)
def test_rank_losses_with_the_pretrained_sorter_learn(
    artifacts: dict[str, Path], tmp_path: Path, loss: dict[str, Any]
) -> None:
    figures = run(validated(loss=loss), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert len(history) == 12
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]
    assert figures["validation_recall_sum"] == pytest.approx(history["recall_sum"].max())
    assert figures["validation_recall_sum"] > 2 * chance(read_dataset(artifacts["dataset"]).split("val"))
    assert load_model(tmp_path).feature_dim == FeatureStore(artifacts["features"]).dim


def test_every_option_at_once(artifacts: dict[str, Path], tmp_path: Path) -> None:
    params = validated(
        epochs=2,
        optimizer={"name": "SGD", "momentum": 0.9, "weight_decay": 0.0005},
        average=0.9,
        micro_batch=5,
        precision="bfloat16",
        train_from={"text_encoder": None, "image_encoder": 1, "image_encoder.attention": 0},
        decay_after=[1, 1.5],
    )
    run(params, **artifacts, embedding=tmp_path)
    assert pd.read_csv(tmp_path / "history.csv")["learning_rate"].tolist() == [0.01, 0.0025]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": {"name": "Adan"}}, "optimizer: torch.optim has no 'Adan'; did you mean 'Adam'"),
        ({"optimizer": {"name": "SGD", "lr": 0.1}}, "optimizer.lr: leave it out, the stage passes it"),
        ({"average": 1.0}, "average: got 1.0"),
        ({"micro_batch": 0}, "micro_batch: got 0"),
        ({"train_from": {"text_encoder": -1}}, "train_from.text_encoder: got -1"),
        ({"halve_after": [3]}, "halve_after: unknown key"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        validated(**changes)


def test_gradient_checkpointing_needs_a_backbone(artifacts: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the model has no backbone that trains; turn it off"):
        run(validated(gradient_checkpointing=True), **artifacts, embedding=tmp_path)
