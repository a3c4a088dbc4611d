"""Layouts of data sets as people have them on disk: from Kaggle, from Hugging Face, and tables of
other programs."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.formats.folder import Folder
from bifocal.datasets.formats.names import match_names
from bifocal.search.collection.sources import Source, files_source
from tests.bifocal.datasets.corpora.image_folder.writers import picture, prepare


def write_images(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(number))


def indexed(folder: Path) -> Source:
    return files_source(folder, folder.parent / "collection")


def test_flickr8k_of_kaggle(tmp_path: Path) -> None:
    folder, names = tmp_path / "flickr8k", [f"{number}_a.jpg" for number in range(10)]
    write_images(folder / "Images", names)
    rows = [
        f"{name},A dog in picture {number} ." for number, name in enumerate(names) for _ in range(5)
    ]
    (folder / "captions.txt").write_text("\n".join(["image,caption", *rows]))
    dataset, rejected = prepare(folder, tmp_path)
    assert (len(dataset.images), len(dataset.captions), len(rejected)) == (10, 50, 0)
    assert indexed(folder).captions["Images/3_a.jpg"] == ["A dog in picture 3 ."] * 5


def test_flickr30k_of_kaggle(tmp_path: Path) -> None:
    folder, names = tmp_path / "flickr30k", [f"{number}.jpg" for number in range(10)]
    write_images(folder / "flickr30k_images", names)
    rows = [
        f"{name}| {k}| A dog in picture {number} ."
        for number, name in enumerate(names)
        for k in range(5)
    ]
    rows[7] = "1.jpg| 2   A dog without a bar ."  # one row is published so
    (folder / "results.csv").write_text("\n".join(["image_name| comment_number| comment", *rows]))
    dataset, rejected = prepare(folder, tmp_path)
    assert (len(dataset.images), len(dataset.captions)) == (10, 49)
    assert rejected["entry"].tolist() == ["results.csv, line 9"]
    assert [text.strip() for text in indexed(folder).captions["flickr30k_images/2.jpg"]] == [
        "A dog in picture 2 ."
    ] * 5


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_imagefolder_of_hugging_face_with_splits(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "hf"
    for split, count in (("train", 8), ("validation", 3), ("test", 2)):
        names = [f"{number}.jpg" for number in range(count)]  # the same names in all splits
        for number, name in enumerate(names):
            (folder / split).mkdir(parents=True, exist_ok=True)
            (folder / split / name).write_bytes(picture(100 * len(split) + number))
        rows = [
            {"file_name": name, "text": f"{split} picture {name}", "code": number}
            for number, name in enumerate(names)
        ]
        lines = [json.dumps(row) for row in rows]
        if suffix == "csv":
            lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        (folder / split / f"metadata.{suffix}").write_text("\n".join(lines))
    dataset, rejected = prepare(folder, tmp_path)
    assert len(rejected) == 0
    assert dataset.images["split"].value_counts().to_dict() == {"train": 8, "val": 3, "test": 2}
    texts = dict(zip(dataset.captions["image_id"], dataset.captions["text"], strict=True))
    assert texts["test/1.jpg"] == "test picture 1.jpg"
    source = indexed(folder)
    assert source.captions["validation/0.jpg"] == ["validation picture 0.jpg"]
    assert source.metadata is not None
    values = {
        row["item_id"]: (row["meta.split"], row["meta.code"]) for row in source.metadata.to_pylist()
    }
    assert values["test/1.jpg"] == ("test", 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"SourceFile,Make\n./0.jpg,Canon\n", "no column is recognized as the image's"),
        (
            "image,caption\n0.jpg,\u201cquoted\u201d\n".encode("cp1252"),
            "cp1252 for a table of Windows",
        ),
        (b'image,caption\n0.jpg,"open\n', "line 2: a quote opens here"),
        (b"", "is empty"),
    ],
)
def test_a_table_of_another_program_does_not_stop_an_index(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    write_images(tmp_path / "photos", ["0.jpg", "1.jpg"])
    (tmp_path / "photos" / "metadata.csv").write_bytes(content)
    (tmp_path / "photos" / "1.txt").write_text("a star")
    source = indexed(tmp_path / "photos")
    assert [entry.item_id for entry in source.entries] == ["0.jpg", "1.jpg"]
    assert source.captions == {"1.jpg": ["a star"]}
    ((_, problem),) = source.rejected
    assert "not read: " in problem
    assert reason in problem


def test_rows_that_name_no_image_are_one_line_of_an_index(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", [f"{number:06}.jpg" for number in range(4)])
    lines = ["image,caption", "000000.jpg,a", *(f"{number},a" for number in range(1, 4))]
    (tmp_path / "photos" / "captions.csv").write_text("\n".join(lines))
    assert list(indexed(tmp_path / "photos").rejected) == [
        (
            "captions.csv",
            "3 rows name no image of the folder, such as captions.csv, line 3: '1'",
        )
    ]


@pytest.mark.parametrize(
    ("images", "name", "found"),
    [
        (["train/a.jpg", "val/a.jpg"], "/old/disk/train/a.jpg", "train/a.jpg"),
        (["train/a.jpg", "val/a.jpg"], "/old/disk/a.jpg", None),
        (["x/my photo 0.jpg"], "my%20photo%200.jpg", "x/my photo 0.jpg"),
        (["100%25.jpg", "100%.jpg"], "100%25.jpg", "100%25.jpg"),
        (["a.jpg"], "../b/a.jpg", None),
        (["xa.jpg"], "a.jpg", None),
    ],
)
def test_names_find_an_image_by_their_last_parts(images: list[str], name: str, found: Any) -> None:
    matched = match_names([name], Folder(Path("/photos"), images))
    assert matched.images == ({name: found} if found else {})


@given(
    st.lists(
        st.sampled_from(
            [
                "caf\u00e9.jpg",
                "cafe\u0301.jpg",
                "CAF\u00c9.jpg",
                "b.jpg",
                " b.jpg",
                "b .jpg",
                "a\\b.jpg",
                "b%20.jpg",
            ]
        ),
        unique=True,
        min_size=1,
    )
)
def test_the_exact_name_wins(images: list[str]) -> None:
    folder = Folder(Path("/photos"), images)
    assert match_names(images, folder).images == {name: name for name in images}
    if len(images) == 1:
        name = unicodedata.normalize("NFD", images[0])
        assert match_names([name], folder).images == {name: images[0]}
