"""Writing of datasets: tables, rejected fraction, leakage."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.base import ImageEntry, RejectedEntry
from tests.bifocal.datasets.small import HEIGHT, SETTINGS, WIDTH, add, rejected


def test_valid_corpus_is_written_completely(tmp_path, corpus):
    counts = write_dataset(tmp_path, "Custom", corpus, **{**SETTINGS, "max_rejected_fraction": 0.0})
    dataset = read_dataset(tmp_path)
    assert [counts[key] for key in ("images", "images_val", "captions", "phrases")] == [3, 1, 6, 3]
    assert dataset.captions["text"].tolist() == [caption.text for caption in corpus.captions]
    assert dataset.images[["width", "height"]].drop_duplicates().values.tolist() == [[WIDTH, HEIGHT]]
    assert dataset.image_path("val") == corpus.image_root / "val" / "a.jpg"
    assert rejected(tmp_path) == {}
    assert json.loads((tmp_path / "dataset.json").read_text())["corpus"] == "Custom"


def test_corpus_without_phrases_has_an_empty_table(tmp_path, corpus):
    write_dataset(tmp_path, "Custom", replace(corpus, phrases=[]), **SETTINGS)
    assert read_dataset(tmp_path).split("train").phrases.empty


def test_identical_file_in_two_splits_is_leakage(tmp_path, corpus, photograph, capsys):
    photograph(corpus.image_root / "other" / "b.jpg", seed=1)  # the image of val
    corpus = add(corpus, ImageEntry("again", "other/b.jpg", "test"))
    counts = write_dataset(tmp_path, "Custom", corpus, **SETTINGS)
    table = pd.read_parquet(tmp_path / "leakage.parquet")
    assert set(zip(table["image_id"], table["split"], strict=True)) == {("val", "val"), ("again", "test")}
    assert table["sha256"].nunique() == 1
    assert counts["leaked_images"] == 2
    assert "leakage: 2 images" in capsys.readouterr().err


def test_identical_file_in_one_split_is_no_leakage(tmp_path, corpus, photograph):
    photograph(corpus.image_root / "other" / "b.jpg", seed=1)
    counts = write_dataset(tmp_path, "Custom", add(corpus, ImageEntry("again", "other/b.jpg", "val")), **SETTINGS)
    assert counts["leaked_images"] == 0


def test_max_rejected_fraction_counts_images_and_captions(tmp_path, corpus):
    broken = add(corpus, ImageEntry("new", "absent.jpg", "val"))  # an image and its caption, of 4 and 7
    fraction = 2 / 11
    write_dataset(tmp_path, "Custom", broken, **{**SETTINGS, "max_rejected_fraction": fraction})
    with pytest.raises(ValueError, match=r"1 of 4 images and 1 of 7 captions .*18\.18%.*absent\.jpg: No such file"):
        write_dataset(tmp_path, "Custom", broken, **{**SETTINGS, "max_rejected_fraction": np.nextafter(fraction, 0)})
    assert "absent.jpg" in rejected(tmp_path)


def test_excluded_entries_are_listed_and_do_not_count(tmp_path, corpus):
    excluded = [RejectedEntry("image", f"{number}.jpg", "in no list", intentional=True) for number in range(50)]
    counts = write_dataset(
        tmp_path, "Custom", replace(corpus, excluded=excluded), **{**SETTINGS, "max_rejected_fraction": 0.0}
    )
    assert (counts["excluded"], counts["rejected_images"]) == (50, 0)
    assert pd.read_parquet(tmp_path / "rejected.parquet")["intentional"].all()


def test_dataset_without_valid_images_is_an_error(tmp_path, corpus):
    with pytest.raises(ValueError, match=r"no image is valid. The first problems: .* more than max_pixels 1; "):
        write_dataset(tmp_path, "Custom", corpus, **{**SETTINGS, "max_pixels": 1})
