"""Pretraining as a classifier: it learns labels and folders, goes on after a kill, and keeps what it learnt."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from bifocal.datasets import Dataset
from bifocal.features.extractors import Pixels
from bifocal.pretraining import image_classifier as classifier
from bifocal.pretraining.image_classifier import pretrain_classifier
from bifocal.pretraining.labeled_images import LabelledImages, class_folders, labels_of

SMALL = {"channels": [8, 16, 24, 32], "stem_width": 8}
COLOURS = {"blue": (30, 40, 220), "green": (30, 210, 40), "red": (220, 30, 40)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of one colour each, in folders called by it."""
    root, random = tmp_path_factory.mktemp("folders"), np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 6)):
        for name, colour in COLOURS.items():
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(np.array(colour) + random.integers(-30, 30, (32, 32, 3)), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(root / split / name / f"{number}.png")
    return root


def learn(kind: Pixels, folders: Path, checkpoints: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, float]]:
    train = class_folders(folders / "train")
    arguments = {"maps": 12, "epochs": 3, "batch_size": 8, "learning_rate": 0.004, "weight_decay": 0.01}
    arguments |= {"train_backbone": True, "checkpoints": checkpoints, "seed": 0, **changes}
    return pretrain_classifier(kind, train, class_folders(folders / "val", train.names), **arguments)


def small() -> Pixels:
    torch.manual_seed(0)
    return Pixels(32, "square", "resnet10t", SMALL)


def test_it_learns_and_a_killed_run_ends_with_the_same_weights(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: Callable[[int], Callable[[], None]]
) -> None:
    whole = small()
    learnt, figures = learn(whole, folders, tmp_path / "whole")
    assert figures["classifier_top1"] > 0.8 > figures["classifier_top1_chance"] == pytest.approx(1 / 3)
    assert learnt["adaptation.weight"].shape == (12, 32)
    tick, real = kill_at(9), classifier._loss
    with monkeypatch.context() as patch:
        patch.setattr(classifier, "_loss", lambda *arguments: (tick(), real(*arguments))[1])
        with pytest.raises(KeyboardInterrupt):
            learn(small(), folders, tmp_path / "killed")
    again = small()
    resumed, same = learn(again, folders, tmp_path / "killed")
    assert same == figures
    assert resumed["adaptation.weight"].equal(learnt["adaptation.weight"])
    for name, value in whole.backbone.network.state_dict().items():
        assert again.backbone.network.state_dict()[name].equal(value)


def test_the_backbone_may_stay_as_it_is(folders: Path, tmp_path: Path) -> None:
    kind = small()
    before = {name: value.clone() for name, value in kind.backbone.network.state_dict().items()}
    learnt, _ = learn(kind, folders, tmp_path, train_backbone=False, epochs=1)
    assert all(value.equal(before[name]) for name, value in kind.backbone.network.state_dict().items())
    assert learnt["adaptation.weight"].isfinite().all()


def test_labels_are_rows_of_targets_and_one_that_nobody_knows_is_left_out() -> None:
    rows = [("b", "shapes", "cube", 1.0), ("a", "shapes", "ball", 0.0), ("a", "shapes", "cube", None)]
    rows += [("a", "count", "objects", 3.0)]
    labels = pd.DataFrame(rows, columns=["image_id", "task", "label", "value"])
    images = pd.DataFrame({"image_id": ["a", "b"], "path": ["a.png", "b.png"], "split": "train"})
    dataset = Dataset(images, pd.DataFrame(), pd.DataFrame(), Path("root"), labels)
    found = labels_of(dataset, "shapes")
    assert found.paths == [Path("root/a.png"), Path("root/b.png")]
    assert found.names == ["ball", "cube"]
    np.testing.assert_array_equal(found.targets, [[0, np.nan], [0, 1]])
    logits = torch.tensor([[1.0, 1e9], [-1.0, 2.0]])
    expected = np.mean([np.log1p(np.exp(1)), np.log1p(np.exp(-1)), np.log1p(np.exp(-2))])
    assert classifier._loss(logits, torch.from_numpy(found.targets), exclusive=False).item() == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"no image of the split has labels of the task 'colour'; there are .*shapes"):
        labels_of(dataset, "colour")
    with pytest.raises(ValueError, match=r"'count' are not all in \[0, 1\]"):
        labels_of(dataset, "count")


def test_a_folder_without_classes_is_refused(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="has no folders of images: expected one for each class"):
            class_folders(root)


def test_exclusive_classes_have_a_softmax() -> None:
    images = LabelledImages([], ["a", "b"], np.eye(2, dtype=np.float32), exclusive=True)
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    expected = -np.mean([2 - np.log(np.exp(2) + 1), 1 - np.log(1 + np.exp(1))])
    assert classifier._loss(logits, torch.from_numpy(images.targets), True).item() == pytest.approx(expected)
