"""Labels of a dataset: the table, its splits, and the labels of scenes."""

from dataclasses import replace

import pandas as pd

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.base import Corpus, ImageEntry, LabelEntry
from bifocal.datasets.corpora import Scenes
from bifocal.datasets.scenes.layout import SHAPES
from tests.bifocal.datasets.corpora.entries import label_values

SETTINGS = {"copy_images": False, "max_pixels": 10_000, "max_rejected_fraction": 1.0}


def test_labels_are_written_and_split(tmp_path, photograph):
    for number, name in enumerate("abc"):
        photograph(tmp_path / "photos" / f"{name}.jpg", seed=number)
    images = [
        ImageEntry(name, f"{name}.jpg", split) for name, split in zip("abc", ("train", "train", "val"), strict=True)
    ]
    labels = [LabelEntry("a", "t", "x", 0.5, "film"), LabelEntry("b", "t", "x", None), LabelEntry("c", "t", "x", 1.0)]
    corpus = Corpus(tmp_path / "photos", images, (), labels=labels)
    broken = [LabelEntry("a", "t", "x", 2.0), LabelEntry("d", "t", "x", 2.0), LabelEntry("b", "u", "x", float("nan"))]
    counts = write_dataset(tmp_path, "Custom", replace(corpus, labels=labels + broken), **SETTINGS)
    assert (counts["images"], counts["captions"], counts["labels"], counts["rejected_labels"]) == (3, 0, 3, 3)
    reasons = dict(pd.read_parquet(tmp_path / "rejected.parquet")[["entry", "reason"]].to_numpy())
    assert reasons["t x of a"] == "duplicate label"
    assert reasons["u x of b"] == "its value is nan"
    train = read_dataset(tmp_path).split("train").labels
    assert list(zip(train["image_id"], train["group"], train["value"].isna(), strict=True)) == [
        ("a", "film", False),
        ("b", "b", True),
    ]


def test_dataset_without_labels_has_no_table(tmp_path, photograph):
    scenes = Scenes(train=3, val=1, test=1, size=64).read(tmp_path / "images")
    write_dataset(tmp_path, "Scenes", replace(scenes, labels=()), **SETTINGS)
    assert not (tmp_path / "labels.parquet").exists()
    assert len(read_dataset(tmp_path).split("train").labels) == 0


def test_labels_of_a_scene_match_its_layout(tmp_path):
    corpus = Scenes(train=20, val=1, test=1, size=64)
    labels = label_values(corpus.read(tmp_path))
    for number in range(20):
        scene, _ = corpus.scene("train", number)
        shapes = [item.appearance.shape for group in scene.groups for item in group]
        assert labels[f"train-{number:05d}", "objects"] == len(shapes)
        assert [labels[f"train-{number:05d}", shape] for shape in SHAPES] == [
            float(shape in shapes) for shape in SHAPES
        ]
