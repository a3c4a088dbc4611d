"""ImageFolder answers every kind of broken input with one clear error, or lists it with its
reason."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.bifocal.datasets.corpora.image_folder.writers import (
    ROWS,
    picture,
    prepare,
    write_csv,
    write_jsonl,
    write_sidecars,
)

INSIDE = (
    "./3.jpg",
    " 3.jpg ",
    ".\\3.jpg",
    "3.JPG",
    "3",
    "%33.jpg",
)
OUTSIDE = ("photos/3.jpg", "C:\\my photos\\3.jpg", "/old/place/3.jpg", "a/../3.jpg", "/etc/passwd")


@pytest.mark.parametrize("name", [*INSIDE, *OUTSIDE])
def test_names_of_images_in_tables(name: str, root: Path, tmp_path: Path) -> None:
    """Names that mean a file of the folder find it; others are rejected, and nothing outside is
    read. A prefix of one name is no rule of the table."""
    rows = [*ROWS[:6], *ROWS[8:]]
    (root / "captions.csv").write_text(
        "\n".join(["image,caption", *map(",".join, rows), f"{name},the third"])
    )
    dataset, rejected = prepare(root, tmp_path)
    assert ("the third" in set(dataset.captions["text"])) == (name in INSIDE)
    broken = rejected[~rejected["intentional"]]
    assert broken.empty == (name in INSIDE)


BAD_TABLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty: expected one row per caption"),
    "latin-1": (
        "image,caption\n0.jpg,\xe9t\xe9\n".encode("latin-1"),
        "line 2: byte 0xe9 is not UTF-8: .*cp1252",
    ),
    "zero bytes": (b"image,caption\n0.jpg,a\0b\n", "line 2: a zero byte"),
    "no header": (b"0.jpg,a dog\n1.jpg,a cat\n", "no column is recognized as the image's"),
    "unknown columns": (
        b"photo_id,words\n0.jpg,a\n",
        "it has 'photo_id', 'words'.* or set image_column",
    ),
    "no caption column": (b"image,words\n0.jpg,a\n", "no column is recognized as the caption's"),
    "one column": (b"image\n0.jpg\n", "no column is recognized as the caption's"),
    "twice the same column": (
        b"image,caption,image\n0.jpg,a,b\n",
        "two columns are called 'image'",
    ),
    "open quote": (
        b'image,caption\n2.jpg,c\n0.jpg,"a dog\n1.jpg,b\n3.jpg,d\n',
        "line 3: a quote opens here, and none closes it: put quotes around a whole field",
    ),
    "quote inside": (b'image,caption\n0.jpg,"a" dog\n', "line 2.*put quotes around a whole field"),
    "only a header": (
        b"image,caption\n",
        r"no caption of .* can be used\. The table of captions has no rows",
    ),
    "all images missing": (b"image,caption\nx.jpg,a\n", "'x.jpg' names no image of the folder"),
    "all captions empty": (
        b"image,caption\n0.jpg,\n1.jpg, \n",
        "caption is empty: expected a caption",
    ),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_table_that_cannot_be_used_is_one_clear_error(
    name: str, root: Path, tmp_path: Path
) -> None:
    content, message = BAD_TABLES[name]
    (root / "captions.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        prepare(root, tmp_path, allowed=0.01)


def test_two_images_of_a_spelling_are_not_guessed(root: Path, tmp_path: Path) -> None:
    (root / "3.png").write_bytes((root / "3.jpg").read_bytes())
    (root / "captions.csv").write_text(
        "\n".join(["image,caption", *map(",".join, ROWS), "3,which one"])
    )
    dataset, rejected = prepare(root, tmp_path)
    assert "which one" not in set(dataset.captions["text"])
    assert "captions.csv, line 22" in set(rejected["entry"])


def test_a_delimiter_of_the_rows_alone_is_an_error(root: Path, tmp_path: Path) -> None:
    (root / "captions.csv").write_text("\n".join(["image;caption", *map(",".join, ROWS)]))
    with pytest.raises(ValueError, match=r"line 2: 1 fields, but the header has 2"):
        prepare(root, tmp_path)


BAD_ROWS: dict[str, tuple[str, str]] = {
    "too many fields": (
        "0.jpg,red, white and blue",
        "3 fields, but the header has 2: quote a text that",
    ),
    "too few fields": ("0.jpg", "1 fields, but the header has 2"),
    "no image": (",a text", "image is '': expected the path of an image"),
    "no caption": ("0.jpg,", "caption is empty"),
    "missing file": ("gone.jpg,a text", "'gone.jpg' names no image"),
    "a folder": ("sub,a text", "'sub' names no image"),
    "outside": ("../secret.jpg,a text", "'../secret.jpg' names no image"),
    "absolute": ("/etc/hostname,a text", "'/etc/hostname' names no image"),
    "control character": ("0.jpg,a\x07text", "control character"),
    "10 MB": (f"0.jpg,{'a' * 10**7}", "10,000,000 characters, more than 10,000"),
    "no image file": ("notes.txt,a text", "not an image in a supported format"),
    "empty file": ("empty.jpg,a text", "the file is empty"),
    "truncated": ("cut.jpg,a text", "cannot be decoded"),
    "a pipe": ("pipe.jpg,a text", "a named pipe or a device, expected a file"),
    "loop of links": ("loop.jpg,a text", "symbolic links"),
    "bomb of pixels": ("huge.png,a text", "more than max_pixels"),
    "a text in place of an image": ("fake.jpg,a text", "not an image in a supported format"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_row_that_cannot_be_used_is_listed_with_its_reason(
    name: str, root: Path, tmp_path: Path
) -> None:
    row, reason = BAD_ROWS[name]
    (root / "sub").mkdir()
    (tmp_path / "secret.jpg").write_bytes(picture(1))
    (root / "notes.txt").write_text("no image")
    (root / "fake.jpg").write_text("no image")
    (root / "empty.jpg").write_bytes(b"")
    (root / "cut.jpg").write_bytes(picture(1)[:200])
    (root / "loop.jpg").symlink_to("loop.jpg")
    os.mkfifo(root / "pipe.jpg")
    Image.new("1", (4000, 4000)).save(root / "huge.png")
    (root / "captions.csv").write_text("\n".join(["image,caption", *map(",".join, ROWS), row, ""]))
    dataset, rejected = prepare(root, tmp_path)
    assert len(dataset.captions) == 20
    assert rejected["reason"].str.contains(reason, regex=False).any()


BOXES = (
    '{"image": "0.jpg", "text": "a", "split": "train", "phrases": [{"phrase": "b", "boxes": [%s]}]}'
)
BAD_JSON_LINES: dict[str, tuple[str, str]] = {
    "broken": ('{"image": "0.jpg", "text": ', "not JSON"),
    "a list": ('["0.jpg", "a"]', "a JSON list, expected an object"),
    "a number as caption": ('{"image": "0.jpg", "text": 7}', "text is 7: expected a text"),
    "a number as image": ('{"image": 3, "text": "a"}', "image is 3: expected the path of an image"),
    "half a surrogate": ('{"image": "0.jpg", "text": "\\ud800"}', "control character"),
    "a deep list": ('{"image": "0.jpg", "text": ' + "[" * 10**5 + "]" * 10**5 + "}", "not JSON"),
    "boxes of three": (BOXES % "[1, 2, 3]", "phrases is"),
    "no list of boxes": (BOXES.replace("[%s]", "%s") % "{}", "phrases is"),
    "a null phrase": (BOXES.replace('"b"', "null") % "", "phrases is"),
    "boxes that are not finite": (BOXES % "[1, 2, 3, NaN]", "not finite"),
    "another split": (
        '{"image": "0.jpg", "text": "a", "split": "holdout"}',
        "split is 'holdout': expected train, val",
    ),
    "two splits": (
        '{"image": "1.jpg", "text": "a", "split": "test"}',
        "an earlier row has 'train' for 1.jpg",
    ),
}


@pytest.mark.parametrize("name", BAD_JSON_LINES)
def test_a_json_line_that_cannot_be_used_is_listed_with_its_reason(
    name: str, root: Path, tmp_path: Path
) -> None:
    line, reason = BAD_JSON_LINES[name]
    rows = [json.dumps({"image": image, "text": text, "split": "train"}) for image, text in ROWS]
    (root / "captions.jsonl").write_text("\n".join([*rows, line]))
    dataset, rejected = prepare(root, tmp_path)
    assert len(dataset.captions) == 20
    assert rejected["reason"].str.contains(reason, regex=False).any()


def test_boxes_outside_the_image_are_listed(root: Path, tmp_path: Path) -> None:
    phrases = [{"phrase": "far away", "boxes": [[100, 100, 120, 120]]}]
    rows = [
        {"image": image, "text": text, "phrases": phrases if image == "0.jpg" else []}
        for image, text in ROWS
    ]
    (root / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _, rejected = prepare(root, tmp_path)
    assert set(rejected["reason"]) == {"no box has an area inside the image"}


WRONG_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"captions": "words.csv"}, "captions is 'words.csv', but .* has no such file"),
    ({"captions": "0.jpg"}, "expected a name that ends in"),
    (
        {"caption_column": "words"},
        r"no column 'words' \(caption_column\); it has 'image', 'caption'",
    ),
    ({"group_column": "who"}, r"no column 'who' \(group_column\)"),
    ({"caption_column": "image"}, "no column is recognized as the image's"),
    ({"val": 0.6, "test": 0.4}, "sum is less than 1"),
    ({"encoding": "utf-99"}, "expected the name of a text encoding"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_ARGUMENTS)
def test_wrong_arguments_are_explained(
    arguments: dict[str, Any], message: str, root: Path, tmp_path: Path
) -> None:
    write_csv(root / "captions.csv")
    with pytest.raises(ValueError, match=message):
        prepare(root, tmp_path, **arguments)


def test_two_tables_are_an_error(root: Path, tmp_path: Path) -> None:
    write_csv(root / "captions.csv")
    write_jsonl(root / "metadata.jsonl")
    with pytest.raises(
        ValueError, match=r"several tables, captions\.csv, metadata\.jsonl: set captions"
    ):
        prepare(root, tmp_path)


def test_a_text_without_its_image_is_said(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sidecars(root)
    (root / "3.jpg").unlink()
    (root / "4.txt").write_bytes(b"\xe9t\xe9")
    _, rejected = prepare(root, tmp_path)
    reasons = dict(zip(rejected["entry"], rejected["reason"], strict=True))
    assert "1 .txt file was not used, such as 3.txt: captions are" in capsys.readouterr().err
    assert "not UTF-8" in reasons["4.jpg"]


def test_a_caption_never_takes_in_the_row_of_another_image(root: Path, tmp_path: Path) -> None:
    rows = [
        f"{number}.jpg,{chr(34) if number == 3 else ''}a star{chr(34) if number == 6 else ''}"
        for number in range(10)
    ]
    (root / "captions.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    dataset, rejected = prepare(root, tmp_path)
    assert set(dataset.captions["text"]) == {"a star"}
    reasons = dict(zip(rejected["entry"], rejected["reason"], strict=True))
    assert "takes in the row of 4.jpg" in reasons["captions.csv, line 5"]


def test_a_folder_without_captions_names_files_that_are_not_read(
    root: Path, tmp_path: Path
) -> None:
    for name in ("captions.json", "metadata.json1", "0.jpg.txt"):
        (root / name).write_text("[]")
    with pytest.raises(
        ValueError,
        match=r"1 .txt file was not used, such as 0\.jpg\.txt: .*1 .json file was not used, such as captions",
    ):
        prepare(root, tmp_path)
