"""Written datasets, and entries that are rejected."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.base import (
    SPLITS,
    CaptionEntry,
    Corpus,
    ImageEntry,
    LabelEntry,
    PhraseEntry,
    RejectedEntry,
)
from bifocal.datasets.writer import validate_corpus
from tests.bifocal.datasets.small import HEIGHT, SETTINGS, WIDTH, add, rejected


def test_valid_corpus_is_written_completely(tmp_path, corpus):
    counts = write_dataset(tmp_path, "Custom", corpus, **{**SETTINGS, "max_rejected_fraction": 0.0})
    dataset = read_dataset(tmp_path)
    assert [counts[key] for key in ("images", "images_val", "captions", "phrases")] == [3, 1, 6, 3]
    assert dataset.captions["text"].tolist() == [caption.text for caption in corpus.captions]
    assert dataset.images[["width", "height"]].drop_duplicates().values.tolist() == [
        [WIDTH, HEIGHT]
    ]
    assert dataset.image_path("val") == corpus.image_root / "val" / "a.jpg"
    assert rejected(tmp_path) == {}
    assert json.loads((tmp_path / "dataset.json").read_text())["corpus"] == "Custom"


def test_corpus_without_phrases_has_an_empty_table(tmp_path, corpus):
    write_dataset(tmp_path, "Custom", replace(corpus, phrases=[]), **SETTINGS)
    assert read_dataset(tmp_path).split("train").phrases.empty


@given(
    path=st.lists(
        st.sampled_from(["..", "val", "link", "a.jpg", "secret.jpg", "loop"]),
        min_size=1,
        max_size=4,
    )
)
def test_no_path_of_a_corpus_leads_out_of_its_root(tmp_path_factory, path):
    root = tmp_path_factory.mktemp("corpus")
    (root / "images" / "val").mkdir(parents=True)
    for file in (root / "secret.jpg", root / "images" / "val" / "a.jpg"):
        Image.new("RGB", (WIDTH, HEIGHT)).save(file)
    (root / "images" / "link").symlink_to("..")
    (root / "images" / "loop").symlink_to("loop")
    (root / "images" / "a.jpg").symlink_to(root / "secret.jpg")
    corpus = Corpus(
        root / "images", [ImageEntry("1", "/".join(path), "val")], [CaptionEntry(1, "1", "a dog")]
    )
    valid, files = validate_corpus(corpus, root / "copies", 10_000)
    copies = [
        file.relative_to(root / "copies").as_posix()
        for file in (root / "copies").rglob("*")
        if file.is_file()
    ]
    assert copies == [image.path for image in valid.images]
    assert len(valid.images) == len(files) == ("/".join(path) == "val/a.jpg")
    assert len(valid.rejected) >= (not valid.images)


def test_identical_file_in_two_splits_is_leakage(tmp_path, corpus, photograph, capsys):
    photograph(corpus.image_root / "other" / "b.jpg", seed=1)  # the image of val
    corpus = add(corpus, ImageEntry("again", "other/b.jpg", "test"))
    counts = write_dataset(tmp_path, "Custom", corpus, **SETTINGS)
    table = pd.read_parquet(tmp_path / "leakage.parquet")
    assert set(zip(table["image_id"], table["split"], strict=True)) == {
        ("val", "val"),
        ("again", "test"),
    }
    assert table["sha256"].nunique() == 1
    assert counts["leaked_images"] == 2
    assert "leakage: 2 images" in capsys.readouterr().err


def test_identical_file_in_one_split_is_no_leakage(tmp_path, corpus, photograph):
    photograph(corpus.image_root / "other" / "b.jpg", seed=1)
    counts = write_dataset(
        tmp_path, "Custom", add(corpus, ImageEntry("again", "other/b.jpg", "val")), **SETTINGS
    )
    assert counts["leaked_images"] == 0


def test_max_rejected_fraction_counts_images_and_captions(tmp_path, corpus):
    broken = add(
        corpus, ImageEntry("new", "absent.jpg", "val")
    )  # an image and its caption, of 4 and 7
    fraction = 2 / 11
    write_dataset(tmp_path, "Custom", broken, **{**SETTINGS, "max_rejected_fraction": fraction})
    with pytest.raises(
        ValueError, match=r"1 of 4 images and 1 of 7 captions .*18\.18%.*absent\.jpg: No such file"
    ):
        write_dataset(
            tmp_path,
            "Custom",
            broken,
            **{**SETTINGS, "max_rejected_fraction": np.nextafter(fraction, 0)},
        )
    assert "absent.jpg" in rejected(tmp_path)


def test_excluded_entries_are_listed_and_do_not_count(tmp_path, corpus):
    excluded = [
        RejectedEntry("image", f"{number}.jpg", "in no list", intentional=True)
        for number in range(50)
    ]
    counts = write_dataset(
        tmp_path,
        "Custom",
        replace(corpus, excluded=excluded),
        **{**SETTINGS, "max_rejected_fraction": 0.0},
    )
    assert (counts["excluded"], counts["rejected_images"]) == (50, 0)
    assert pd.read_parquet(tmp_path / "rejected.parquet")["intentional"].all()


def test_dataset_without_valid_images_is_an_error(tmp_path, corpus):
    with pytest.raises(
        ValueError, match=r"no image is valid. The first problems: .* more than max_pixels 1; "
    ):
        write_dataset(tmp_path, "Custom", corpus, **{**SETTINGS, "max_pixels": 1})


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
    write_dataset(
        tmp_path, "Custom", add(corpus, ImageEntry("new", "absent.jpg", "val")), **SETTINGS
    )
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
    counts = write_dataset(
        tmp_path, "Custom", replace(corpus, captions=[*corpus.captions, caption]), **SETTINGS
    )
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


def test_labels_are_written_and_split(tmp_path, photograph):
    for number, name in enumerate("abc"):
        photograph(tmp_path / "photos" / f"{name}.jpg", seed=number)
    images = [
        ImageEntry(name, f"{name}.jpg", split)
        for name, split in zip("abc", ("train", "train", "val"), strict=True)
    ]
    labels = [
        LabelEntry("a", "t", "x", 0.5, "film"),
        LabelEntry("b", "t", "x", None),
        LabelEntry("c", "t", "x", 1.0),
    ]
    corpus = Corpus(tmp_path / "photos", images, (), labels=labels)
    broken = [
        LabelEntry("a", "t", "x", 2.0),
        LabelEntry("d", "t", "x", 2.0),
        LabelEntry("b", "u", "x", float("nan")),
    ]
    counts = write_dataset(tmp_path, "Custom", replace(corpus, labels=labels + broken), **SETTINGS)
    assert (counts["images"], counts["captions"], counts["labels"], counts["rejected_labels"]) == (
        3,
        0,
        3,
        3,
    )
    reasons = dict(pd.read_parquet(tmp_path / "rejected.parquet")[["entry", "reason"]].to_numpy())
    assert reasons["t x of a"] == "duplicate label"
    assert reasons["u x of b"] == "its value is nan"
    train = read_dataset(tmp_path).split("train").labels
    assert list(zip(train["image_id"], train["group"], train["value"].isna(), strict=True)) == [
        ("a", "film", False),
        ("b", "b", True),
    ]


def test_a_foreign_dataset_opens_no_file_outside(tmp_path, corpus):
    (tmp_path / "dataset").mkdir()
    write_dataset(tmp_path / "dataset", "Custom", corpus, **SETTINGS)
    images = pd.read_parquet(tmp_path / "dataset" / "images.parquet")
    secret = tmp_path / "private.png"
    Image.new("RGB", (9, 9)).save(secret)
    description = tmp_path / "dataset" / "dataset.json"
    (tmp_path / "dataset" / "links").mkdir()
    (tmp_path / "dataset" / "links" / "a.png").symlink_to(secret)
    for path in (str(secret), "../../private.png", "../private.png", "a.png"):
        schema = pq.read_schema(tmp_path / "dataset" / "images.parquet")
        table = pa.Table.from_pandas(images.assign(path=path), schema=schema)
        pq.write_table(table, tmp_path / "dataset" / "images.parquet")
        for root in ("images", "links", "."):
            content = {**json.loads(description.read_text()), "image_root": root}
            description.write_text(json.dumps({**content, "follow_links": True}))
            dataset = read_dataset(tmp_path / "dataset")
            try:
                opened = dataset.image_path(images["image_id"][0])
                assert not opened.exists()
            except ValueError as error:
                assert "not a path inside" in str(error)  # noqa: PT017
