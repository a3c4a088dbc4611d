"""Labeled features, and the training of heads on them."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.losses import (
    MeanAveragePrecisionLoss,
    MultiLabelSoftMarginLoss,
    RecallLoss,
    RegressionLoss,
    SpearmanLoss,
)
from bifocal.ranking_heads import MLPHead
from bifocal.ranking_heads.labeled import LabeledFeatures, MetricName, pool_by_group, score
from bifocal.ranking_heads.model import RankingModel
from bifocal.ranking_heads.training import (
    epoch_batches,
    fit_head,
    predict,
)
from bifocal.sorters import PositionwiseLSTMSorter
from bifocal.training.optimizers import Phase
from bifocal.training.schedules import Step

DIM = 6
ARGUMENTS: dict[str, Any] = {
    "phase": Phase(epochs=6, learning_rate=0.02, schedule=Step(3, 0.5)),
    "batch_size": 8,
    "seed": 1,
}
Labeled = Callable[[str, str], LabeledFeatures]


def small_head(labels: int = 1) -> RankingModel:
    torch.manual_seed(0)
    return RankingModel(MLPHead(DIM, labels, hidden=16))


def test_pool_by_group_averages_the_frames_of_a_video(labeled: Labeled) -> None:
    samples = labeled("val", "grade")
    scores = torch.randn(len(samples), 1, generator=torch.Generator().manual_seed(0))
    pooled = pool_by_group(samples, scores)
    assert (len(samples), len(pooled.scores)) == (20, 10)
    for row, video in enumerate(samples.groups):
        frames = [
            i for i, name in enumerate(samples.image_ids) if f"video{int(name[5:]) // 2}" == video
        ]
        assert pooled.scores[row].item() == pytest.approx(sum(scores[i].item() for i in frames) / 2)
        assert pooled.truth[row].item() == pytest.approx(
            sum(samples.values[i].item() for i in frames) / 2
        )


def test_difficult_labels_count_as_present_in_training_and_are_excluded_from_the_metric(
    collection: tuple[Dataset, FeatureStore],
) -> None:
    dataset, features = collection
    table = dataset.labels.copy()
    table.loc[(table["image_id"] == "frame00") & (table["label"] == "left"), "value"] = None
    samples = LabeledFeatures(replace(dataset, labels=table), features, "kinds")
    assert samples.labels == ["left", "right"]
    assert samples.targets(torch.tensor([0]), "average_precision")[0].tolist() == [True]
    truth = samples.values.T == 1
    scores = torch.where(truth, 1.0, 0.0).T.clone()
    scores[0, 0] = -9.0
    assert score(pool_by_group(samples, scores), "average_precision") == 1.0


def test_labeled_features_reject_missing_labels(
    collection: tuple[Dataset, FeatureStore], labeled: Labeled
) -> None:
    dataset, features = collection
    with pytest.raises(ValueError, match=r"task 'shape'; there are \['grade', 'kinds'\]"):
        labeled("train", "shape")
    lacking = dataset.labels[
        (dataset.labels["image_id"] != "frame03") | (dataset.labels["label"] != "left")
    ]
    with pytest.raises(
        ValueError, match="1 images lack labels of 'kinds' that others have, such as 'frame03'"
    ):
        LabeledFeatures(replace(dataset, labels=lacking), features, "kinds")


def test_average_precision_rejects_graded_labels(labeled: Labeled) -> None:
    samples = labeled("val", "grade")
    with pytest.raises(ValueError, match="use spearman"):
        score(pool_by_group(samples, torch.zeros(len(samples), 1)), "average_precision")


@pytest.mark.parametrize(("count", "batch_size"), [(10, 3), (9, 3), (4, 4)])
def test_epoch_batches_contain_every_image_once_and_complete_the_last_batch(
    count: int, batch_size: int
) -> None:
    batches = epoch_batches(count, batch_size, seed=0, epoch=0)
    flat = batches.flatten().tolist()
    assert sorted(flat[:count]) == list(range(count))
    assert flat[count:] == flat[: len(flat) - count]
    assert not torch.equal(batches, epoch_batches(count, batch_size, seed=0, epoch=1))


@pytest.mark.parametrize(
    ("task", "metric", "labels", "loss"),
    [
        ("grade", "spearman", 1, SpearmanLoss()),
        ("grade", "spearman", 1, RegressionLoss(to_ranks=True)),
        ("kinds", "average_precision", 2, MeanAveragePrecisionLoss()),
        ("kinds", "average_precision", 2, RecallLoss(surrogate="rank")),
        ("kinds", "average_precision", 2, MultiLabelSoftMarginLoss()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fit_head_learns_with_any_loss_and_keeps_the_best_epoch(
    tmp_path: Path, labeled: Labeled, task: str, metric: MetricName, labels: int, loss: nn.Module
) -> None:
    train, validation, head = labeled("train", task), labeled("val", task), small_head(labels)
    before = score(pool_by_group(validation, predict(head, validation)), metric)
    history = fit_head(
        head, loss, train, validation, metric=metric, checkpoints=tmp_path, **ARGUMENTS
    )
    assert [row["learning_rate"] for row in history] == [0.02] * 3 + [0.01] * 3
    best = max(row[metric] for row in history)
    assert (
        score(pool_by_group(validation, predict(head, validation)), metric)
        == best
        > max(before, 0.6)
    )


@pytest.mark.parametrize("killed_after", [1, 4])
def test_interrupted_fit_resumes_with_its_sorter_and_auxiliary_loss(
    tmp_path: Path, labeled: Labeled, killed_after: int
) -> None:
    train, validation = labeled("train", "grade"), labeled("val", "grade")

    def parts() -> tuple[RankingModel, SpearmanLoss]:
        torch.manual_seed(1)
        sorter = PositionwiseLSTMSorter(length=8, hidden=4, layers=1)
        return small_head(), SpearmanLoss(
            sorter, fine_tune=1.0, auxiliary_weight=0.1, auxiliary_steps=12
        )

    def fit(head: RankingModel, loss: SpearmanLoss, name: str, **more: Any) -> Any:
        checkpoints = tmp_path / name
        return fit_head(
            head,
            loss,
            train,
            validation,
            metric="spearman",
            checkpoints=checkpoints,
            **ARGUMENTS,
            **more,
        )

    whole, loss = parts()
    untrained = {name: weight.clone() for name, weight in loss.state_dict().items()}
    expected = fit(whole, loss, "whole")
    assert any(
        not torch.equal(weight, untrained[name])
        for name, weight in loss.state_dict().items()
        if "lstm" in name
    )

    def kill(row: dict[str, float]) -> None:
        if row["epoch"] == killed_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(*parts(), "killed", on_epoch=kill)
    torch.rand(5)  # a new process has another random state
    head, resumed_loss = parts()
    assert fit(head, resumed_loss, "killed") == expected
    for module, resumed in ((whole, head), (loss, resumed_loss)):
        for name, weight in module.state_dict().items():
            assert torch.equal(resumed.state_dict()[name], weight), name


def test_fit_head_rejects_bad_inputs_before_training(tmp_path: Path, labeled: Labeled) -> None:
    train, validation = labeled("train", "grade"), labeled("val", "grade")
    arguments: dict[str, Any] = ARGUMENTS | {"metric": "spearman", "checkpoints": tmp_path}
    with pytest.raises(ValueError, match="batch_size is 41, but the split has 40 images"):
        fit_head(small_head(), SpearmanLoss(), train, validation, **arguments | {"batch_size": 41})
    with pytest.raises(ValueError, match="different labels"):
        fit_head(small_head(), SpearmanLoss(), train, labeled("val", "kinds"), **arguments)
    broken = small_head()
    torch.nn.init.constant_(next(broken.parameters()), nan)
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        fit_head(broken, RegressionLoss(), train, validation, **arguments)
    described = json.loads((tmp_path / "nonfinite_loss.json").read_text())
    assert described["images"][0].startswith("frame")
