"""Phases of the training of a head on pixels, with its backbone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bifocal.features import FeatureStore, FeatureWriter
from bifocal.losses import (
    MeanAveragePrecisionLoss,
)
from bifocal.ranking_heads import MLPHead
from bifocal.ranking_heads.backbones.base import RankingBackbone
from bifocal.ranking_heads.labeled import LabeledFeatures
from bifocal.ranking_heads.model import RankingModel, build_ranking_model
from bifocal.ranking_heads.training import (
    fit_phases,
)
from bifocal.training.optimizers import Phase, StepOptions
from tests.bifocal.ranking_heads.labels import label, labeled_dataset

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
    labels = []
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
            labels += [
                label(name, "looks", "bright", number % 2),
                label(name, "looks", "left", number % 3 > 0),
            ]
    splits = {f"image{number:02d}": "train" for number in range(IMAGES)}
    dataset = labeled_dataset(folder, splits, labels)
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
