"""Pretraining as an image classifier: labels, class folders, learning and resume."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from bifocal.datasets import Dataset
from bifocal.features.extractors import ImageFiles, Pixels
from bifocal.training.pretraining import image_classifier as classifier
from bifocal.training.pretraining.image_classifier import (
    ClassificationImages,
    class_folders,
    labels_of,
    pretrain_classifier,
)
from tests.margins import beyond_chance

Interrupt = Callable[[int], Callable[[], None]]
SMALL = {"channels": [8, 16, 24, 32], "stem_width": 8}
COLORS = {"blue": (30, 40, 220), "green": (30, 210, 40), "red": (220, 30, 40)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of one color each, in one folder per color."""
    return write_folders(tmp_path_factory.mktemp("folders"), widths=(32,))


def write_folders(root: Path, widths: tuple[int, ...]) -> Path:
    """Write images of 32 rows; their numbers of columns alternate."""
    random = np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 6)):
        for name, color in COLORS.items():
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(
                    np.array(color)
                    + random.integers(-30, 30, (32, widths[number % len(widths)], 3)),
                    0,
                    255,
                )
                Image.fromarray(pixels.astype(np.uint8)).save(root / split / name / f"{number}.png")
    return root


def train_classifier(
    extractor: Pixels | ImageFiles, folders: Path, checkpoints: Path, **changes: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    train = class_folders(folders / "train")
    arguments = {
        "maps": 12,
        "epochs": 3,
        "batch_size": 8,
        "learning_rate": 0.004,
        "weight_decay": 0.01,
    }
    arguments |= {"train_backbone": True, "checkpoints": checkpoints, "seed": 0, **changes}
    return pretrain_classifier(
        extractor, train, class_folders(folders / "val", train.names), **arguments
    )


def small_extractor() -> Pixels:
    torch.manual_seed(0)
    return Pixels(32, "square", "resnet10t", SMALL)


def test_pretrain_classifier_learns_and_resumes_bit_for_bit(
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kill_at: Interrupt,
    sigterm_at: Interrupt,
) -> None:
    whole = small_extractor()
    adaptation, metrics = train_classifier(whole, folders, tmp_path / "whole")
    assert (
        metrics["classifier_top1"] > 0.8 > metrics["classifier_top1_chance"] == pytest.approx(1 / 3)
    )
    assert adaptation["adaptation.weight"].shape == (12, 32)
    loss = classifier._loss
    for name, tick in {"killed": kill_at(9), "terminated": sigterm_at(9)}.items():
        with monkeypatch.context() as patch:
            patch.setattr(
                classifier, "_loss", lambda *arguments, tick=tick: (tick(), loss(*arguments))[1]
            )
            with pytest.raises((KeyboardInterrupt, SystemExit)):
                train_classifier(small_extractor(), folders, tmp_path / name)
        again = small_extractor()
        resumed, resumed_metrics = train_classifier(again, folders, tmp_path / name)
        assert resumed_metrics == metrics
        assert resumed["adaptation.weight"].equal(adaptation["adaptation.weight"])
        for key, value in whole.backbone.network.state_dict().items():
            assert again.backbone.network.state_dict()[key].equal(value)


def test_pretrain_classifier_can_freeze_the_backbone(folders: Path, tmp_path: Path) -> None:
    extractor = small_extractor()
    before = {
        name: value.clone() for name, value in extractor.backbone.network.state_dict().items()
    }
    adaptation, _ = train_classifier(extractor, folders, tmp_path, train_backbone=False, epochs=1)
    assert all(
        value.equal(before[name]) for name, value in extractor.backbone.network.state_dict().items()
    )
    assert adaptation["adaptation.weight"].isfinite().all()


def test_pretrain_classifier_learns_from_crops_of_images_of_any_shape(tmp_path: Path) -> None:
    folders = write_folders(tmp_path, widths=(32, 24, 48))
    torch.manual_seed(0)
    extractor = ImageFiles(64, "limit", "resnet10t", SMALL)
    _, metrics = train_classifier(extractor, folders, tmp_path / "checkpoints", epochs=4)
    assert metrics["classifier_top1"] > beyond_chance(6 * len(COLORS), 1 / len(COLORS))


def test_labels_of_gives_targets_and_unknown_labels_are_excluded_from_the_loss() -> None:
    rows = [
        ("b", "shapes", "cube", 1.0),
        ("a", "shapes", "ball", 0.0),
        ("a", "shapes", "cube", None),
    ]
    rows += [("a", "count", "objects", 3.0)]
    labels = pd.DataFrame(rows, columns=["image_id", "task", "label", "value"])
    table = pd.DataFrame({"image_id": ["a", "b"], "path": ["a.png", "b.png"], "split": "train"})
    dataset = Dataset(table, pd.DataFrame(), pd.DataFrame(), Path("root"), labels)
    images = labels_of(dataset, "shapes")
    root = Path.cwd() / "root"
    assert images.paths == [root / "a.png", root / "b.png"]
    assert images.names == ["ball", "cube"]
    np.testing.assert_array_equal(images.targets, [[0, np.nan], [0, 1]])
    logits = torch.tensor([[1.0, 1e9], [-1.0, 2.0]])
    expected = np.mean([np.log1p(np.exp(1)), np.log1p(np.exp(-1)), np.log1p(np.exp(-2))])
    assert classifier._loss(
        logits, torch.from_numpy(images.targets), exclusive=False
    ).item() == pytest.approx(expected)
    with pytest.raises(
        ValueError,
        match=r"no image of the split has labels of the task 'color'; there are .*shapes",
    ):
        labels_of(dataset, "color")
    with pytest.raises(ValueError, match=r"'count' are not all in \[0, 1\]"):
        labels_of(dataset, "count")


def test_class_folders_rejects_a_folder_without_classes(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            ValueError, match="has no folders of images: expected one folder per class"
        ):
            class_folders(root)


def test_exclusive_classes_get_a_softmax_loss() -> None:
    images = ClassificationImages([], ["a", "b"], np.eye(2, dtype=np.float32), exclusive=True)
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    expected = -np.mean([2 - np.log(np.exp(2) + 1), 1 - np.log(1 + np.exp(1))])
    assert classifier._loss(logits, torch.from_numpy(images.targets), True).item() == pytest.approx(
        expected
    )
