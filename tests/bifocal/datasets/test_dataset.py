"""Datasets in memory: splits, image files, consistency of the tables."""

import shutil
from dataclasses import replace

import pandas as pd
import pytest

from bifocal.datasets import dataset as dataset_module
from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.base import SPLITS
from bifocal.datasets.corpora import Scenes
from bifocal.datasets.tables import IMAGES, write_table
from tests.bifocal.datasets.small import SETTINGS


def test_split_has_only_its_rows(tmp_path, corpus):
    write_dataset(tmp_path, "Custom", corpus, **SETTINGS)
    dataset = read_dataset(tmp_path)
    for number, split in enumerate(SPLITS):
        part = dataset.split(split)
        assert part.images["image_id"].tolist() == [split]
        assert part.captions["caption_id"].tolist() == [2 * number, 2 * number + 1]
        assert part.phrases["caption_id"].tolist() == [2 * number]
        assert part.image_path(split).is_file()
    with pytest.raises(KeyError, match="no image 'val'"):
        dataset.split("train").image_path("val")
    with pytest.raises(ValueError, match="no split 'dev'"):
        dataset.split("dev")


def test_copied_images_move_with_the_dataset(tmp_path, corpus):
    first = tmp_path / "first"
    first.mkdir()
    write_dataset(first, "Custom", corpus, **{**SETTINGS, "copy_images": True})
    moved = first.rename(tmp_path / "moved")
    path = read_dataset(moved).image_path("test")
    assert path.is_relative_to(moved)
    assert path.read_bytes() == (corpus.image_root / "test" / "a.jpg").read_bytes()


def test_an_image_that_is_a_link_out_now_is_not_opened(tmp_path, corpus, monkeypatch):
    """Also if the link takes its place after the look at its path."""
    (tmp_path / "dataset").mkdir()
    write_dataset(tmp_path / "dataset", "Custom", corpus, **{**SETTINGS, "copy_images": True})
    dataset = read_dataset(tmp_path / "dataset")
    file = dataset.image_path("test")
    secret = file.rename(tmp_path / "secret.jpg")
    shutil.copyfile(secret, file)
    assert dataset.open_image("test").size
    look = dataset_module.path_inside

    def exchange(*arguments, **options):
        found = look(*arguments, **options)
        file.unlink(missing_ok=True)
        file.symlink_to(secret)
        return found

    monkeypatch.setattr(dataset_module, "path_inside", exchange)
    with pytest.raises((OSError, ValueError)):
        dataset.open_image("test")


def test_corpus_without_files_has_no_paths(tmp_path, corpus):
    images = [replace(image, path=None) for image in corpus.images]
    counts = write_dataset(
        tmp_path, "Custom", replace(corpus, images=images, phrases=[]), **SETTINGS
    )
    dataset = read_dataset(tmp_path)
    assert counts["leaked_images"] == 0
    assert dataset.images["sha256"].isna().all()
    with pytest.raises(ValueError, match="has no file"):
        dataset.image_path("train")


def test_inconsistent_tables_are_rejected(tmp_path, corpus):
    write_dataset(tmp_path, "Custom", corpus, **SETTINGS)
    images = tmp_path / "images.parquet"
    rows = pd.read_parquet(images).to_dict("records")
    write_table(images, IMAGES, [row for row in rows if row["split"] != "val"])
    with pytest.raises(
        ValueError, match=r"captions\.parquet, column 'image_id': 'val' is not in images\.parquet"
    ):
        read_dataset(tmp_path)
    write_table(images, IMAGES, [{**row, "split": "dev"} for row in rows])
    with pytest.raises(
        ValueError, match=r"images\.parquet, column 'split': \['dev'\], expected train, val, test"
    ):
        read_dataset(tmp_path)


def test_dataset_without_labels_has_no_table(tmp_path):
    scenes = Scenes(train=3, val=1, test=1, size=64).read(tmp_path / "images")
    write_dataset(tmp_path, "Scenes", replace(scenes, labels=()), **SETTINGS)
    assert not (tmp_path / "labels.parquet").exists()
    assert len(read_dataset(tmp_path).split("train").labels) == 0
