"""Write and read datasets: validation, rejected entries, leakage."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, PhraseEntry, RejectedEntry
from bifocal.datasets.tables import IMAGES, write_table

SETTINGS = {"copy_images": False, "max_pixels": 1000, "max_rejected_fraction": 1.0}
WIDTH, HEIGHT = 24, 16


@pytest.fixture
def corpus(tmp_path: Path, photograph: Callable[..., Path]) -> Corpus:
    """Three images, one per split, each with two captions and a phrase."""
    root = tmp_path / "photos"
    for seed, split in enumerate(SPLITS):
        photograph(root / split / "a.jpg", seed=seed, width=WIDTH, height=HEIGHT)
    captions = [CaptionEntry(number, SPLITS[number // 2], f"caption {number}") for number in range(6)]
    return Corpus(
        root,
        [ImageEntry(split, f"{split}/a.jpg", split) for split in SPLITS],
        captions,
        [PhraseEntry(split, 2 * number, "caption", ((0, 0, 5, 6),)) for number, split in enumerate(SPLITS)],
    )


def rejected(directory: Path) -> dict[str, str]:
    table = pd.read_parquet(directory / "rejected.parquet")
    return dict(zip(table["entry"], table["reason"], strict=True))


def add(corpus: Corpus, image: ImageEntry) -> Corpus:
    """Add an image and its caption to ``corpus``."""
    caption = CaptionEntry(100, image.image_id, "one more")
    return replace(corpus, images=[*corpus.images, image], captions=[*corpus.captions, caption])


def test_valid_corpus_is_written_completely(tmp_path, corpus):
    counts = write_dataset(tmp_path, "Custom", corpus, **{**SETTINGS, "max_rejected_fraction": 0.0})
    dataset = read_dataset(tmp_path)
    assert [counts[key] for key in ("images", "images_val", "captions", "phrases")] == [3, 1, 6, 3]
    assert dataset.captions["text"].tolist() == [caption.text for caption in corpus.captions]
    assert dataset.images[["width", "height"]].drop_duplicates().values.tolist() == [[WIDTH, HEIGHT]]
    assert dataset.image_path("val") == corpus.image_root / "val" / "a.jpg"
    assert rejected(tmp_path) == {}
    assert json.loads((tmp_path / "dataset.json").read_text())["corpus"] == "Custom"


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


def test_corpus_without_phrases_has_an_empty_table(tmp_path, corpus):
    write_dataset(tmp_path, "Custom", replace(corpus, phrases=[]), **SETTINGS)
    assert read_dataset(tmp_path).split("train").phrases.empty


def test_corpus_without_files_has_no_paths(tmp_path, corpus):
    images = [replace(image, path=None) for image in corpus.images]
    counts = write_dataset(tmp_path, "Custom", replace(corpus, images=images, phrases=[]), **SETTINGS)
    dataset = read_dataset(tmp_path)
    assert counts["leaked_images"] == 0
    assert dataset.images["sha256"].isna().all()
    with pytest.raises(ValueError, match="has no file"):
        dataset.image_path("train")


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (ImageEntry("new", "absent.jpg", "val"), "No such file"),
        (ImageEntry("train", "val/a.jpg", "val"), "listed twice; the first entry, in split train"),
        (ImageEntry("new", "../photos/val/a.jpg", "val"), "path outside the image root"),
        (ImageEntry("new", "/etc/passwd", "val"), "path outside the image root"),
        (ImageEntry("new", "val/a.jpg", "val", size=(HEIGHT, WIDTH)), "but its boxes refer to"),
    ],
)
def test_invalid_image_is_listed(tmp_path, corpus, image, reason):
    counts = write_dataset(tmp_path, "Custom", add(corpus, image), **SETTINGS)
    assert counts["rejected_images"] == 1
    assert reason in rejected(tmp_path)[image.path]
    assert read_dataset(tmp_path).images["image_id"].tolist() == list(SPLITS)


def test_captions_of_a_rejected_image_are_listed(tmp_path, corpus):
    write_dataset(tmp_path, "Custom", add(corpus, ImageEntry("new", "absent.jpg", "val")), **SETTINGS)
    assert "its image new is not in the dataset" in rejected(tmp_path)["100 of new"]


@pytest.mark.parametrize(
    ("caption", "reason"),
    [
        (CaptionEntry(9, "train", " \t"), "empty text"),
        (CaptionEntry(9, "nowhere", "a dog"), "its image nowhere is not in the dataset"),
        (CaptionEntry(0, "train", "a dog"), "duplicate caption_id"),
    ],
)
def test_invalid_caption_is_listed(tmp_path, corpus, caption, reason):
    counts = write_dataset(tmp_path, "Custom", replace(corpus, captions=[*corpus.captions, caption]), **SETTINGS)
    assert (counts["rejected_captions"], counts["captions"]) == (1, len(corpus.captions))
    assert reason in rejected(tmp_path)[f"{caption.caption_id} of {caption.image_id}"]


def test_image_without_caption_is_listed(tmp_path, corpus):
    images = [*corpus.images, ImageEntry("mute", "val/a.jpg", "val")]
    write_dataset(tmp_path, "Custom", replace(corpus, images=images), **SETTINGS)
    assert rejected(tmp_path) == {"val/a.jpg": "no caption and no label"}


def test_boxes_are_clipped_to_the_image(tmp_path, corpus):
    phrases = [
        PhraseEntry("train", None, "half outside", ((-3, 2, 5, HEIGHT + 7),)),
        PhraseEntry("train", None, "one of two", ((WIDTH, 0, WIDTH + 4, 4), (1, 1, 2, 2))),
        PhraseEntry("train", None, "outside", ((-4, -4, 0, 5),)),
        PhraseEntry("train", None, "flat", ((1, 5, 9, 5),)),
        PhraseEntry("train", None, "unknown", ((1, float("nan"), 9, 5),)),
        PhraseEntry("train", 99, "without its caption", ((1, 1, 9, 5),)),
    ]
    counts = write_dataset(tmp_path, "Custom", replace(corpus, phrases=phrases), **SETTINGS)
    table = read_dataset(tmp_path).phrases
    assert table["phrase"].tolist() == ["half outside", "one of two"]
    assert [boxes.tolist() for boxes in table["boxes"]] == [[[0, 2, 5, HEIGHT]], [[1, 1, 2, 2]]]
    assert counts["rejected_phrases"] == len(rejected(tmp_path)) == 4


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
    with pytest.raises(ValueError, match="no image is valid"):
        write_dataset(tmp_path, "Custom", corpus, **{**SETTINGS, "max_pixels": 1})


def test_inconsistent_tables_are_rejected(tmp_path, corpus):
    write_dataset(tmp_path, "Custom", corpus, **SETTINGS)
    images = tmp_path / "images.parquet"
    rows = pd.read_parquet(images).to_dict("records")
    write_table(images, IMAGES, [row for row in rows if row["split"] != "val"])
    with pytest.raises(ValueError, match=r"captions\.parquet, column 'image_id': 'val' is not in images\.parquet"):
        read_dataset(tmp_path)
    write_table(images, IMAGES, [{**row, "split": "dev"} for row in rows])
    with pytest.raises(ValueError, match=r"images\.parquet, column 'split': \['dev'\], expected train, val, test"):
        read_dataset(tmp_path)
