"""The stage train_embedding on small scenes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset, read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.hubness.bank import HubnessBank
from bifocal.metrics import chance_report
from bifocal.models import load_model
from bifocal.sorters import PositionwiseLSTMSorter, save_sorter
from bifocal.training.members import MEMBER_SEED
from bifocal.training.pretraining.sorter import train_sorter
from bifocal.training.schedules import Step
from components.train_embedding.run import run
from tests.components.train_embedding.conftest import Scened
from tests.components.train_embedding.section import validated


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Scenes, features that hold which words their captions have, and a sorter pretrained for 16
    scores."""
    paths = scened(160, 20)
    captions = read_dataset(paths["dataset"]).captions
    words = sorted({word for text in captions["text"] for word in text.split()})
    random = np.random.default_rng(0)
    directions = {word: random.normal(size=24) for word in words}
    with FeatureWriter(
        paths["features"], regions=2, dim=24, metadata={}, images_per_file=64
    ) as writer:
        for image_id, own in captions.groupby("image_id"):
            seen = sum(directions[word] for word in set(" ".join(own["text"]).split()))
            writer.add(
                str(image_id), np.stack([seen, 0.1 * random.normal(size=24)]).astype(np.float32)
            )
    arguments = {"hidden": 8, "layers": 1}
    sorter = PositionwiseLSTMSorter(16, **arguments)
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
    report = chance_report(
        torch.tensor([rows[image] for image in tables.captions["image_id"]]), (1, 5, 10)
    )
    return sum(values[f"R@{k}"] for values in report.values() for k in (1, 5, 10))


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        {"name": "RecallLoss", "fine_tune": 0.5, "auxiliary_weight": 1.0, "auxiliary_steps": 30},
        {"name": "RecallLoss", "surrogate": "log_rank", "auxiliary_weight": 1.0},
    ],
)
def test_rank_losses_train_with_the_pretrained_sorter(
    artifacts: dict[str, Path], tmp_path: Path, loss: dict[str, Any]
) -> None:
    metrics = run(validated({"loss": loss}), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert len(history) == 12
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]
    assert metrics["validation_recall_sum"] == pytest.approx(history["recall_sum"].max())
    assert metrics["best_epoch"] == history["recall_sum"].idxmax() + 1
    assert metrics["validation_recall_sum"] > 2 * chance(
        read_dataset(artifacts["dataset"]).split("val")
    )
    assert load_model(tmp_path).feature_dim == FeatureStore(artifacts["features"]).dim


def test_all_options_train_together(artifacts: dict[str, Path], tmp_path: Path) -> None:
    phase = {
        "epochs": 2,
        "schedule": {"name": "MultiStep", "milestones": [1, 1.5], "gamma": 0.5},
        "frozen_until": {"text_encoder": None, "image_encoder": 1, "image_encoder.attention": 0},
    }
    optimizer = {"name": "SGD", "momentum": 0.9, "weight_decay": 0.0005}
    params = validated(
        phase, optimizer=optimizer, ema_decay=0.9, micro_batch_size=5, precision="bfloat16"
    )
    run(params, **artifacts, embedding=tmp_path)
    assert pd.read_csv(tmp_path / "history.csv")["learning_rate"].tolist() == [0.01, 0.0025]


def test_history_names_the_monitored_metric(artifacts: dict[str, Path], tmp_path: Path) -> None:
    run(validated({"epochs": 1}), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert history["monitor"].equals(history["recall_sum"])
    assert history[["phase", "epoch"]].to_numpy().tolist() == [[0, 1]]


def test_gradient_checkpointing_needs_a_backbone(
    artifacts: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="the model has no backbone that trains; turn it off"):
        run(validated(gradient_checkpointing=True), **artifacts, embedding=tmp_path)


def test_members_are_trained_with_different_seeds_and_joined(
    artifacts: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("alone", "both", "second"):
        (tmp_path / name).mkdir()
    phase = {"epochs": 2}
    alone = run(validated(phase), **artifacts, embedding=tmp_path / "alone")
    metrics = run(validated(phase, members=2), **artifacts, embedding=tmp_path / "both")
    second = validated(phase).model_copy(update={"seed": MEMBER_SEED})
    other = run(second, **artifacts, embedding=tmp_path / "second")
    model = load_model(tmp_path / "both")
    assert model.image_encoder.dim == 64
    for part in ("image_encoder", "text_encoder"):
        for folder, member in zip(("alone", "second"), getattr(model, part).members, strict=True):
            expected = getattr(load_model(tmp_path / folder), part).state_dict()
            assert all(
                torch.equal(tensor, expected[name]) for name, tensor in member.state_dict().items()
            )
    recalls = [values["validation_recall_sum"] for values in (alone, other)]
    assert metrics["validation_mean_recall_sum"] == pytest.approx(sum(recalls) / 2)
    assert metrics["validation_recall_sum"] > chance(
        read_dataset(artifacts["dataset"]).split("val")
    )
    assert pd.read_csv(tmp_path / "both" / "history.csv")["epoch"].tolist() == [1, 2, 3, 4]


def test_a_member_in_closed_form_is_joined(artifacts: dict[str, Path], tmp_path: Path) -> None:
    image = {"name": "LinearEncoder", "standardize": True}
    model = {
        "name": "TwoBranchModel",
        "dim": 8,
        "image_encoder": image,
        "text_encoder": "LinearEncoder",
    }
    cca = {"name": "CCA", "regularization": 1.0, "power": 1.0}
    for name in ("trained", "fitted", "joined"):
        (tmp_path / name).mkdir()
    trained = run(
        validated({"epochs": 2}, model=model), **artifacts, embedding=tmp_path / "trained"
    )
    fitted = validated(model=model, initialization=cca).model_copy(update={"phases": []})
    run(fitted, **artifacts, embedding=tmp_path / "fitted")
    metrics = run(
        validated({"epochs": 2}, model=model, closed_form=[cca]),
        **artifacts,
        embedding=tmp_path / "joined",
    )
    joined = load_model(tmp_path / "joined")
    for part in ("image_encoder", "text_encoder"):
        for folder, member in zip(
            ("trained", "fitted"), getattr(joined, part).members, strict=True
        ):
            expected = getattr(load_model(tmp_path / folder), part).state_dict()
            assert all(
                torch.equal(tensor, expected[name]) for name, tensor in member.state_dict().items()
            )
    assert metrics["validation_mean_recall_sum"] == trained["validation_recall_sum"]
    assert 0 < metrics["mean_correlation"] < 1


def test_bank_of_training_queries_is_stored_unless_it_is_turned_off(
    artifacts: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("default", "none"):
        (tmp_path / name).mkdir()
    run(validated({"epochs": 1}), **artifacts, embedding=tmp_path / "default")
    bank = HubnessBank.read(tmp_path / "default")
    assert bank is not None
    assert bank.reference == {"name": "CSLS"}
    train = read_dataset(artifacts["dataset"]).split("train")
    assert (
        (len(bank.captions), len(bank.images))
        == (len(train.captions), len(train.images))
        == (800, 160)
    )
    run(validated({"epochs": 1}, hubness=None), **artifacts, embedding=tmp_path / "none")
    assert HubnessBank.read(tmp_path / "none") is None
