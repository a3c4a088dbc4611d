"""Labeled features, and the training of heads on them."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.losses import (
    MeanAveragePrecisionLoss,
    MultiLabelSoftMarginLoss,
    RecallLoss,
    RegressionLoss,
    SpearmanLoss,
)
from bifocal.ranking_heads import MLPHead
from bifocal.ranking_heads.backbones.base import RankingBackbone
from bifocal.ranking_heads.labeled import LabeledFeatures, MetricName, pool_by_group, score
from bifocal.ranking_heads.model import RankingModel, build_ranking_model
from bifocal.ranking_heads.training import (
    epoch_batches,
    fit_head,
    fit_phases,
    predict,
)
from bifocal.sorters import PositionwiseLSTMSorter
from bifocal.training.optimizers import Phase, StepOptions
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


SIZE, IMAGES = 32, 12
CELLS: dict[str, Any] = {
    "name": "CellBackbone",
    "backbone": "resnet10t",
    "image_size": SIZE,
    "model_arguments": {"channels": [4, 4, 4, 8], "stem_width": 4},
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> LabeledFeatures:
    """Small images with two labels: bright, and brighter on the left."""
    folder = tmp_path_factory.mktemp("pixels")
    random = np.random.default_rng(0)
    rows, images = [], []
    metadata = {"layer": "pixels", "dtype": "uint8"}
    with FeatureWriter(
        folder, regions=SIZE, dim=3 * SIZE, metadata=metadata, images_per_file=64
    ) as writer:
        for number in range(IMAGES):
            name = f"image{number:02d}"
            pixels = random.integers(0, 100, (SIZE, SIZE, 3)) + (100 if number % 2 else 0)
            pixels[:, : SIZE // 2] += 50 if number % 3 else 0
            writer.add(
                name,
                pixels.reshape(SIZE, -1).astype(np.uint8),
                None,
                np.full(SIZE, SIZE, np.float32),
            )
            images.append({"image_id": name, "split": "train"})
            for label, value in (("bright", number % 2), ("left", number % 3 > 0)):
                rows.append(
                    {
                        "image_id": name,
                        "group": name,
                        "task": "looks",
                        "label": label,
                        "value": float(value),
                    }
                )
    captions = pd.DataFrame({"caption_id": [], "image_id": [], "text": []})
    dataset = Dataset(
        pd.DataFrame(images), captions, pd.DataFrame({"image_id": []}), folder, pd.DataFrame(rows)
    )
    return LabeledFeatures(dataset, FeatureStore(folder), "looks")


def new_model(**changes: Any) -> RankingModel:
    torch.manual_seed(0)
    return build_ranking_model(
        {"name": "MLPHead", "hidden": 4}, CELLS | changes, input_dim=3, labels=2
    )


def train(
    model: RankingModel,
    samples: LabeledFeatures,
    folder: Path,
    phases: list[Phase],
    **options: Any,
) -> Any:
    loss = options.pop("loss", None) or MeanAveragePrecisionLoss(
        auxiliary_weight=1.0, auxiliary_steps=3
    )
    torch.manual_seed(1)
    return fit_phases(
        model,
        loss,
        samples,
        samples,
        phases,
        metric="average_precision",
        checkpoints=folder,
        seed=0,
        batch_size=options.pop("batch_size", 6),
        on_epoch=options.pop("on_epoch", lambda row: None),
        options=StepOptions(**({"max_grad_norm": None} | options)),
    )


HEAD_ONLY = Phase(epochs=1, learning_rate=0.01, frozen_until={"backbone": None})
WHOLE = Phase(epochs=2, learning_rate=0.01, frozen_until={"backbone": 1})


def weights(model: RankingModel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def changed(previous: dict[str, Tensor], model: RankingModel) -> set[str]:
    return {
        name.split(".")[0]
        for name, value in weights(model).items()
        if not torch.equal(value, previous[name])
    }


def test_a_frozen_backbone_does_not_change_and_a_phase_later_it_trains(
    tmp_path: Path, samples: LabeledFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter((0.1, 0.2, 0.3))  # every epoch is better than the one before, so all are kept
    monkeypatch.setattr(
        "bifocal.ranking_heads.training.score", lambda predictions, metric: next(values)
    )
    model = new_model()
    seen: list[tuple[float, float, set[str]]] = []
    previous = weights(model)

    def record(row: dict[str, float]) -> None:
        nonlocal previous
        seen.append((row["phase"], row["epoch"], changed(previous, model)))
        previous = weights(model)

    history = train(model, samples, tmp_path, [HEAD_ONLY, WHOLE], on_epoch=record)
    assert seen == [(0, 1, {"head"}), (1, 2, {"head"}), (1, 3, {"head", "backbone"})]
    assert [row["average_precision"] for row in history] == [0.1, 0.2, 0.3]


def test_a_phase_that_does_not_improve_is_undone(
    tmp_path: Path, samples: LabeledFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter((0.5, 0.4, 0.5))
    monkeypatch.setattr(
        "bifocal.ranking_heads.training.score", lambda predictions, metric: next(values)
    )
    model = new_model()
    ends: list[dict[str, Tensor]] = []
    train(
        model,
        samples,
        tmp_path,
        [HEAD_ONLY, WHOLE],
        on_epoch=lambda row: ends.append(weights(model)),
    )
    assert all(torch.equal(value, ends[0][name]) for name, value in weights(model).items())
    assert changed(ends[0], model) == set()
    assert any(not torch.equal(value, ends[0][name]) for name, value in ends[2].items())


def test_the_learning_rate_of_a_module_has_its_factor(
    tmp_path: Path, samples: LabeledFeatures
) -> None:
    steps: dict[float, dict[str, Tensor]] = {}
    for factor in (1.0, 0.25):
        model = new_model()
        previous = weights(model)
        phase = Phase(epochs=1, learning_rate=0.5, learning_rate_factors={"backbone": factor})
        options: dict[str, Any] = {"optimizer": "SGD", "batch_size": IMAGES, "precision": "float32"}
        train(model, samples, tmp_path / str(factor), [phase], **options)
        steps[factor] = {name: value - previous[name] for name, value in weights(model).items()}
    for name in ("head.layers.0.weight", "backbone.network.network.conv1.0.weight"):
        factor = 0.25 if name.startswith("backbone") else 1.0
        torch.testing.assert_close(
            steps[0.25][name], factor * steps[1.0][name], atol=1e-7, rtol=1e-3
        )
        assert steps[1.0][name].abs().max() > 0


class Pixelwise(RankingBackbone):
    """A backbone without batch norm, which would normalize each micro-batch by itself."""

    def __init__(self) -> None:
        super().__init__(4)
        self.layer = nn.Linear(3, 4)

    def forward(self, pixels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(self.layer(pixels.flatten(2).mT / 255)), mask.flatten(1)

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        return ("batch", 3, "height", "width")

    def keeps_square(self, size: int) -> bool:
        return True

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        return torch.tanh(self.layer(pixels.flatten(2).mT / 255))

    def load_pretrained(self, directory: Path) -> None:
        """Keep the random weights."""


def test_micro_batches_give_the_gradient_of_the_whole_batch(
    tmp_path: Path, samples: LabeledFeatures
) -> None:
    results = []
    for size in (None, 5):
        torch.manual_seed(0)
        model = RankingModel(MLPHead(4, 2, hidden=4), Pixelwise())
        previous = weights(model)
        options: dict[str, Any] = {
            "optimizer": "SGD",
            "batch_size": IMAGES,
            "micro_batch_size": size,
        }
        train(
            model,
            samples,
            tmp_path / str(size),
            [Phase(epochs=1, learning_rate=10.0)],
            **options,
        )
        assert changed(previous, model) == {"head", "backbone"}
        results.append(weights(model))
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("killed_after", [1, 2])
def test_an_interrupted_training_resumes_bit_for_bit(
    tmp_path: Path, samples: LabeledFeatures, killed_after: int
) -> None:
    phases = [HEAD_ONLY, WHOLE]
    views: dict[str, Any] = {"min_crop_area": 0.3, "flip": True}
    whole = new_model(**views)
    expected = train(whole, samples, tmp_path / "whole", phases)

    def kill(row: dict[str, float]) -> None:
        if row["epoch"] == killed_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(new_model(**views), samples, tmp_path / "killed", phases, on_epoch=kill)
    model = new_model(**views)
    assert train(model, samples, tmp_path / "killed", phases) == expected
    assert changed(weights(whole), model) == set()
