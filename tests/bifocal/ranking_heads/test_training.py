"""Labelled images, and fitting a head to them."""

from dataclasses import replace
from math import nan
from typing import Any

import pytest
import torch

from bifocal.losses import MeanAveragePrecisionLoss, MultiLabelSoftMarginLoss, RecallLoss, RegressionLoss, SpearmanLoss
from bifocal.ranking_heads import MLPHead
from bifocal.ranking_heads.labeled import LabelledImages, judge, measure
from bifocal.ranking_heads.training import epoch_batches, fit_head, predict
from bifocal.sorters import LSTMSorter

DIM = 6
SCHEDULE: dict[str, Any] = {"epochs": 6, "batch_size": 8, "learning_rate": 0.02, "halve_every": 3, "seed": 1}


def small_head(labels: int = 1) -> MLPHead:
    torch.manual_seed(0)
    return MLPHead(DIM, labels, hidden=16)


def test_frames_are_judged_by_the_mean_of_their_video(labelled):
    samples = labelled("val", "grade")
    scores = torch.randn(len(samples), 1, generator=torch.Generator().manual_seed(0))
    found = judge(samples, scores)
    assert (len(samples), len(found.scores)) == (20, 10)
    for row, video in enumerate(samples.groups):
        frames = [i for i, name in enumerate(samples.image_ids) if f"video{int(name[5:]) // 2}" == video]
        assert found.scores[row].item() == pytest.approx(sum(scores[i].item() for i in frames) / 2)
        assert found.truth[row].item() == pytest.approx(sum(samples.values[i].item() for i in frames) / 2)


def test_what_is_not_measured_is_learnt_as_present(collection):
    dataset, features = collection
    table = dataset.labels.copy()
    table.loc[(table["image_id"] == "frame00") & (table["label"] == "left"), "value"] = None
    samples = LabelledImages(replace(dataset, labels=table), features, "kinds")
    assert samples.labels == ["left", "right"]
    assert samples.targets(torch.tensor([0]), "average_precision")[0].tolist() == [True]
    truth = samples.values.T == 1
    scores = torch.where(truth, 1.0, 0.0).T.clone()
    scores[0, 0] = -9.0
    assert measure(judge(samples, scores), "average_precision") == 1.0


def test_labels_that_do_not_fit_are_refused(collection, labelled):
    dataset, features = collection
    with pytest.raises(ValueError, match=r"task 'shape'; there are \['grade', 'kinds'\]"):
        labelled("train", "shape")
    lacking = dataset.labels[(dataset.labels["image_id"] != "frame03") | (dataset.labels["label"] != "left")]
    with pytest.raises(ValueError, match="1 images lack labels of 'kinds' that others have, such as 'frame03'"):
        LabelledImages(replace(dataset, labels=lacking), features, "kinds")
    graded = labelled("val", "grade")
    with pytest.raises(ValueError, match="use spearman"):
        measure(judge(graded, torch.zeros(len(graded), 1)), "average_precision")


@pytest.mark.parametrize(("count", "batch_size"), [(10, 3), (9, 3), (4, 4)])
def test_every_image_comes_once_and_the_last_batch_is_filled_up(count, batch_size):
    batches = epoch_batches(count, batch_size, seed=0, epoch=0)
    flat = batches.flatten().tolist()
    assert sorted(flat[:count]) == list(range(count))
    assert flat[count:] == flat[: len(flat) - count]
    assert not torch.equal(batches, epoch_batches(count, batch_size, seed=0, epoch=1))


@pytest.mark.parametrize(
    ("task", "kind", "labels", "loss"),
    [
        ("grade", "spearman", 1, SpearmanLoss()),
        ("grade", "spearman", 1, RegressionLoss(to_ranks=True)),
        ("kinds", "average_precision", 2, MeanAveragePrecisionLoss()),
        ("kinds", "average_precision", 2, RecallLoss(surrogate="rank")),
        ("kinds", "average_precision", 2, MultiLabelSoftMarginLoss()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_loss_fits_a_head_and_the_best_epoch_is_kept(tmp_path, labelled, task, kind, labels, loss):
    train, validation, head = labelled("train", task), labelled("val", task), small_head(labels)
    before = measure(judge(validation, predict(head, validation)), kind)
    history = fit_head(head, loss, train, validation, kind=kind, checkpoints=tmp_path, **SCHEDULE)
    assert [row["learning_rate"] for row in history] == [0.02] * 3 + [0.01] * 3
    best = max(row["validation"] for row in history)
    assert measure(judge(validation, predict(head, validation)), kind) == best > max(before, 0.6)


@pytest.mark.parametrize("killed_after", [1, 4])
def test_a_killed_fit_ends_as_an_undisturbed_one_with_its_sorter_and_its_alignment(tmp_path, labelled, killed_after):
    train, validation = labelled("train", "grade"), labelled("val", "grade")

    def parts() -> tuple[MLPHead, SpearmanLoss]:
        torch.manual_seed(1)
        sorter = LSTMSorter(length=8, hidden=4, layers=1)
        return small_head(), SpearmanLoss(sorter, fine_tune=1.0, auxiliary_weight=0.1, auxiliary_steps=12)

    def fit(head: MLPHead, loss: SpearmanLoss, name: str, **more: Any) -> Any:
        return fit_head(head, loss, train, validation, kind="spearman", checkpoints=tmp_path / name, **SCHEDULE, **more)

    whole, loss = parts()
    untrained = {name: weight.clone() for name, weight in loss.state_dict().items()}
    expected = fit(whole, loss, "whole")
    assert any(not torch.equal(weight, untrained[name]) for name, weight in loss.state_dict().items() if "lstm" in name)

    def kill(row: dict[str, float]) -> None:
        if row["epoch"] == killed_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(*parts(), "killed", on_epoch=kill)
    torch.rand(5)  # a new process has another random state
    head, again = parts()
    assert fit(head, again, "killed") == expected
    for one, other in ((whole, head), (loss, again)):
        for name, weight in one.state_dict().items():
            assert torch.equal(other.state_dict()[name], weight), name


def test_what_cannot_be_fitted_is_said_before_it_is_tried(tmp_path, labelled):
    train, validation = labelled("train", "grade"), labelled("val", "grade")
    with pytest.raises(ValueError, match="batch_size is 41, but the split has 40 images"):
        fit_head(
            small_head(), SpearmanLoss(), train, validation, kind="spearman", checkpoints=tmp_path,
            **SCHEDULE | {"batch_size": 41},
        )  # fmt: skip
    with pytest.raises(ValueError, match="other labels"):
        fit_head(
            small_head(),
            SpearmanLoss(),
            train,
            labelled("val", "kinds"),
            kind="spearman",
            checkpoints=tmp_path,
            **SCHEDULE,
        )
    broken = small_head()
    torch.nn.init.constant_(next(broken.parameters()), nan)
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        fit_head(broken, RegressionLoss(), train, validation, kind="spearman", checkpoints=tmp_path, **SCHEDULE)
