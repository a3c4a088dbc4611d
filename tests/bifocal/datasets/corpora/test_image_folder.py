"""ImageFolder reads the formats that people have, and answers every kind of broken input with a reason."""

import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.corpora import ImageFolder
from bifocal.datasets.splits import draw_groups


def picture(number: int) -> bytes:
    """A JPEG of 24 x 16 pixels that resembles no other."""
    pixels = np.random.default_rng(number).integers(0, 256, (4, 6), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((24, 16)).convert("RGB").save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten images, 0.jpg to 9.jpg."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.jpg").write_bytes(picture(number))
    return folder


def prepare(root: Path, tmp_path: Path, allowed: float = 1.0, **arguments: Any) -> tuple[Any, pd.DataFrame]:
    """Write the dataset as the stage does; return it with its rejected entries."""
    out = tmp_path / "dataset"
    out.mkdir(exist_ok=True)
    corpus = ImageFolder(root, **arguments).read(out / "images")
    write_dataset(out, "ImageFolder", corpus, copy_images=True, max_pixels=10**6, max_rejected_fraction=allowed)
    return read_dataset(out), pd.read_parquet(out / "rejected.parquet")


ROWS = [(f"{number}.jpg", f"caption {word} of {number}") for number in range(10) for word in ("one", "two")]


def write_csv(path: Path, header: str = "image,caption", delimiter: str = ",") -> None:
    lines = [header.replace(",", delimiter), *(delimiter.join(row) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n")


def write_jsonl(path: Path) -> None:
    path.write_text("\n".join(json.dumps({"file_name": image, "text": text, "city": "Rome"}) for image, text in ROWS))


def write_list_jsonl(path: Path) -> None:
    texts: dict[str, list[str]] = {}
    for image, text in ROWS:
        texts.setdefault(image, []).append(text)
    path.write_text("\n".join(json.dumps({"image": image, "captions": text}) for image, text in texts.items()))


def write_sidecars(root: Path) -> None:
    for number in range(10):
        (root / f"{number}.txt").write_text("".join(f"{text}\n" for image, text in ROWS if image == f"{number}.jpg"))


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_shards(root: Path) -> None:
    """Two shards as img2dataset writes them; images of the folder move into them."""
    for shard in range(2):
        with tarfile.open(root / f"0000{shard}.tar", "w") as tar:
            for number in range(5 * shard, 5 * shard + 5):
                lines = [text for image, text in ROWS if image == f"{number}.jpg"]
                add(tar, f"{number:09}.jpg", picture(number))
                add(tar, f"{number:09}.txt", "\n".join(lines).encode())
                add(tar, f"{number:09}.json", json.dumps({"caption": lines[0], "url": f"http://x/{number}"}).encode())
                (root / f"{number}.jpg").unlink()


FORMATS: dict[str, Callable[[Path], None]] = {
    "csv": lambda root: write_csv(root / "captions.csv"),
    "semicolons": lambda root: write_csv(root / "captions.csv", delimiter=";"),
    "tsv": lambda root: write_csv(root / "captions.tsv", delimiter="\t"),
    "spelled": lambda root: write_csv(root / "captions.csv", "File Name,Description"),
    "bom": lambda root: (root / "captions.csv").write_text(
        "\n".join(["image,caption", *map(",".join, ROWS)]), encoding="utf-8-sig"
    ),
    "utf16": lambda root: (root / "captions.csv").write_text(
        "\n".join(["image,caption", *map(",".join, ROWS)]), encoding="utf-16"
    ),
    "crlf": lambda root: (root / "captions.csv").write_bytes(
        "\r\n".join(["image,caption", *map(",".join, ROWS)]).encode()
    ),
    "cr": lambda root: (root / "captions.csv").write_bytes("\r".join(["image,caption", *map(",".join, ROWS)]).encode()),
    "huggingface": lambda root: write_jsonl(root / "metadata.jsonl"),
    "lists": lambda root: write_list_jsonl(root / "captions.jsonl"),
    "parquet": lambda root: pd.DataFrame(ROWS, columns=["image", "text"]).to_parquet(root / "captions.parquet"),
    "sidecars": write_sidecars,
    "webdataset": write_shards,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_all_captions_of_all_images(name: str, root: Path, tmp_path: Path) -> None:
    FORMATS[name](root)
    dataset, rejected = prepare(root, tmp_path)
    assert rejected.empty
    assert sorted(dataset.captions["text"]) == sorted(text for _, text in ROWS)
    assert dataset.captions.groupby("image_id").size().tolist() == [2] * 10
    assert dataset.images["split"].value_counts().to_dict() == {"train": 6, "val": 2, "test": 2}
    files = {path.suffix for path in (tmp_path / "dataset" / "images").rglob("*") if path.is_file()}
    assert files == {".jpg"}


def test_a_zip_file_is_a_root(root: Path, tmp_path: Path) -> None:
    write_csv(root / "captions.csv")
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in root.iterdir():
            packed.write(path, f"photos/{path.name}")
    dataset, rejected = prepare(archive, tmp_path)
    assert rejected.empty
    assert len(dataset.captions) == 20
    assert dataset.image_path("photos/3.jpg").read_bytes() == (root / "3.jpg").read_bytes()


def test_metadata_is_kept_with_its_types(root: Path, tmp_path: Path) -> None:
    lines = ["image,caption,year,city", *(f"{number}.jpg,a text,{1990 + number},Rome" for number in range(10))]
    (root / "captions.csv").write_text("\n".join(lines))
    dataset, _ = prepare(root, tmp_path)
    assert dataset.metadata["city"].tolist() == ["Rome"] * 10
    assert dataset.split("val").metadata["image_id"].tolist() == dataset.split("val").images["image_id"].tolist()
    jsonl = "\n".join(
        json.dumps({"image": f"{number}.jpg", "text": "a", "n": number, "mixed": [1, "a"][number % 2]})
        for number in range(10)
    )
    (root / "captions.csv").unlink()
    (root / "captions.jsonl").write_text(jsonl)
    dataset, _ = prepare(root, tmp_path)
    assert dataset.metadata["n"].tolist() == list(range(10))
    assert dataset.metadata["mixed"].tolist() == ["1", "a"] * 5


def test_given_splits_and_phrases(root: Path, tmp_path: Path) -> None:
    splits = ["train"] * 6 + ["validation", "dev", "test", "Test"]
    phrases = json.dumps([{"phrase": "a star", "boxes": [[1, 2, 10, 12]]}]).replace('"', '""')
    lines = [f'{number}.jpg,a star here,{splits[number]},"{phrases}"' for number in range(10)]
    (root / "captions.csv").write_text("\n".join(["image,caption,split,phrases", *lines]))
    dataset, rejected = prepare(root, tmp_path)
    assert rejected.empty
    assert dataset.images["split"].tolist() == ["train"] * 6 + ["val"] * 2 + ["test"] * 2
    assert dataset.phrases["boxes"][0].tolist() == [[1, 2, 10, 12]]


def test_groups_and_near_duplicates_stay_together(root: Path, tmp_path: Path) -> None:
    """0 and 1 look the same; 2 to 5 are of one photographer."""
    with Image.open(root / "0.jpg") as image:
        image.save(root / "1.jpg", quality=60)
    lines = ["image,caption,who", *(f"{number}.jpg,text,{'A' if 2 <= number <= 5 else number}" for number in range(10))]
    (root / "captions.csv").write_text("\n".join(lines))
    for seed in range(12):
        arguments = {"group_column": "who", "val": 0.4, "test": 0.2, "seed": seed}
        splits = {image.image_id: image.split for image in ImageFolder(root, **arguments).read(tmp_path).images}
        assert splits["0.jpg"] == splits["1.jpg"]
        assert len({splits[f"{number}.jpg"] for number in range(2, 6)}) == 1
        counts = pd.Series(splits).value_counts()
        assert (counts["val"], counts["test"]) == (4, 2)
    one, other = (ImageFolder(root, seed=seed).read(tmp_path).images for seed in (1, 2))
    assert [image.split for image in one] != [image.split for image in other]


def test_the_draw_does_not_depend_on_the_order() -> None:
    groups = {str(number): str(number // 3) for number in range(30)}
    drawn = draw_groups(groups, {"val": 0.2, "test": 0.1}, seed=5)
    assert drawn == draw_groups(dict(reversed(groups.items())), {"val": 0.2, "test": 0.1}, seed=5)
    assert pd.Series(drawn).value_counts().to_dict() == {"train": 21, "val": 6, "test": 3}


def test_images_without_captions_are_kept_on_request(root: Path, tmp_path: Path) -> None:
    (root / "captions.csv").write_text("\n".join(["image,caption", *map(",".join, ROWS[:12])]))
    dataset, rejected = prepare(root, tmp_path, val=0.2, test=0.2)
    assert len(dataset.images) == 6
    assert rejected["intentional"].tolist() == [True] * 4
    assert "uncaptioned: true keeps it" in rejected["reason"][0]
    dataset, rejected = prepare(root, tmp_path, val=0.2, test=0.2, uncaptioned=True)
    assert rejected.empty
    assert dataset.split("uncaptioned").images["image_id"].tolist() == ["6.jpg", "7.jpg", "8.jpg", "9.jpg"]
    assert set(dataset.split("train").images["image_id"]) < {f"{number}.jpg" for number in range(6)}


@pytest.mark.parametrize(
    "name", ["./3.jpg", "photos/3.jpg", "a/../3.jpg", " 3.jpg ", ".\\3.jpg", "C:\\my photos\\3.jpg", "/etc/passwd"]
)
def test_names_of_images_in_tables(name: str, root: Path, tmp_path: Path) -> None:
    """Names that mean a file of the folder find it; others are rejected, and nothing outside is read."""
    rows = [*ROWS[:6], *ROWS[8:]]
    (root / "captions.csv").write_text("\n".join(["image,caption", *map(",".join, rows), f"{name},the third"]))
    dataset, rejected = prepare(root, tmp_path)
    inside = {"./3.jpg", " 3.jpg ", ".\\3.jpg"}
    assert ("the third" in set(dataset.captions["text"])) == (name in inside)
    broken = rejected[~rejected["intentional"]]
    assert broken.empty == (name in inside)


BAD_TABLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty: expected one row per caption"),
    "latin-1": ("image,caption\n0.jpg,\xe9t\xe9\n".encode("latin-1"), "line 2: byte 0xe9 is not utf-8: .*latin-1"),
    "zero bytes": (b"image,caption\n0.jpg,a\0b\n", "line 2: a zero byte"),
    "no header": (b"0.jpg,a dog\n1.jpg,a cat\n", "no column is recognized as the image's"),
    "unknown columns": (b"photo_id,words\n0.jpg,a\n", "it has 'photo_id', 'words'.* or set image_column"),
    "no caption column": (b"image,words\n0.jpg,a\n", "no column is recognized as the caption's"),
    "one column": (b"image\n0.jpg\n", "no column is recognized as the caption's"),
    "twice the same column": (b"image,caption,image\n0.jpg,a,b\n", "two columns are called 'image'"),
    "open quote": (b'image,caption\n0.jpg,"a dog\n1.jpg,b\n', "put quotes around a whole field"),
    "quote inside": (b'image,caption\n0.jpg,"a" dog\n', "line 2.*put quotes around a whole field"),
    "header alone": (b"image,caption\n", "no caption of .* can be used"),
    "all images missing": (b"image,caption\nx.jpg,a\n", "are rejected, together"),
    "all captions empty": (b"image,caption\n0.jpg,\n1.jpg, \n", "caption is empty: expected a caption"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_table_that_cannot_be_used_is_one_clear_error(name: str, root: Path, tmp_path: Path) -> None:
    content, message = BAD_TABLES[name]
    (root / "captions.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        prepare(root, tmp_path, allowed=0.01)


BAD_ROWS: dict[str, tuple[str, str]] = {
    "too many fields": ("0.jpg,red, white and blue", "3 fields, but the header has 2: quote a text that"),
    "too few fields": ("0.jpg", "1 fields, but the header has 2"),
    "no image": (",a text", "image is '': expected the path of an image"),
    "no caption": ("0.jpg,", "caption is empty"),
    "missing file": ("gone.jpg,a text", "No such file"),
    "a folder": ("sub,a text", "Is a directory"),
    "outside": ("../secret.jpg,a text", "path outside the image root"),
    "absolute": ("/etc/hostname,a text", "path outside the image root"),
    "control character": ("0.jpg,a\x07text", "control character"),
    "10 MB": (f"0.jpg,{'a' * 10**7}", "10,000,000 characters, more than 10,000"),
    "no image file": ("notes.txt,a text", "not an image in a supported format"),
    "empty file": ("empty.jpg,a text", "the file is empty"),
    "truncated": ("cut.jpg,a text", "cannot be decoded"),
    "loop of links": ("loop.jpg,a text", "symbolic links"),
    "bomb of pixels": ("huge.png,a text", "more than max_pixels"),
    "a text in place of an image": ("fake.jpg,a text", "not an image in a supported format"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_row_that_cannot_be_used_is_listed_with_its_reason(name: str, root: Path, tmp_path: Path) -> None:
    row, reason = BAD_ROWS[name]
    (root / "sub").mkdir()
    (tmp_path / "secret.jpg").write_bytes(picture(1))
    (root / "notes.txt").write_text("no image")
    (root / "fake.jpg").write_text("no image")
    (root / "empty.jpg").write_bytes(b"")
    (root / "cut.jpg").write_bytes(picture(1)[:200])
    (root / "loop.jpg").symlink_to("loop.jpg")
    Image.new("1", (4000, 4000)).save(root / "huge.png")
    (root / "captions.csv").write_text("\n".join(["image,caption", *map(",".join, ROWS), row, ""]))
    dataset, rejected = prepare(root, tmp_path)
    assert len(dataset.captions) == 20
    assert rejected["reason"].str.contains(reason, regex=False).any()


BOXES = '{"image": "0.jpg", "text": "a", "split": "train", "phrases": [{"phrase": "b", "boxes": [%s]}]}'
BAD_JSON_LINES: dict[str, tuple[str, str]] = {
    "broken": ('{"image": "0.jpg", "text": ', "not JSON"),
    "a list": ('["0.jpg", "a"]', "a JSON list, expected an object"),
    "a number as caption": ('{"image": "0.jpg", "text": 7}', "text is 7: expected a text"),
    "a number as image": ('{"image": 3, "text": "a"}', "image is 3: expected the path of an image"),
    "half a surrogate": ('{"image": "0.jpg", "text": "\\ud800"}', "control character"),
    "a deep list": ('{"image": "0.jpg", "text": ' + "[" * 10**5 + "]" * 10**5 + "}", "not JSON"),
    "boxes of three": (BOXES % "[1, 2, 3]", "phrases is"),
    "boxes that are not finite": (BOXES % "[1, 2, 3, NaN]", "not finite"),
    "another split": ('{"image": "0.jpg", "text": "a", "split": "holdout"}', "split is 'holdout': expected train, val"),
    "two splits": ('{"image": "1.jpg", "text": "a", "split": "test"}', "an earlier row has 'train' for 1.jpg"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_JSON_LINES)
def test_a_json_line_that_cannot_be_used_is_listed_with_its_reason(name: str, root: Path, tmp_path: Path) -> None:
    line, reason = BAD_JSON_LINES[name]
    rows = [json.dumps({"image": image, "text": text, "split": "train"}) for image, text in ROWS]
    (root / "captions.jsonl").write_text("\n".join([*rows, line]))
    dataset, rejected = prepare(root, tmp_path)
    assert len(dataset.captions) == 20
    assert rejected["reason"].str.contains(reason, regex=False).any()


def test_boxes_outside_the_image_are_listed(root: Path, tmp_path: Path) -> None:
    phrases = [{"phrase": "far away", "boxes": [[100, 100, 120, 120]]}]
    rows = [{"image": image, "text": text, "phrases": phrases if image == "0.jpg" else []} for image, text in ROWS]
    (root / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _, rejected = prepare(root, tmp_path)
    assert set(rejected["reason"]) == {"no box has an area inside the image"}


WRONG_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"captions": "words.csv"}, "captions is 'words.csv', but .* is not a file"),
    ({"captions": "0.jpg"}, "expected a name that ends in"),
    ({"caption_column": "words"}, r"no column 'words' \(caption_column\); it has 'image', 'caption'"),
    ({"group_column": "who"}, r"no column 'who' \(group_column\)"),
    ({"caption_column": "image"}, "no column is recognized as the image's"),
    ({"val": 0.6, "test": 0.4}, "sum is less than 1"),
    ({"encoding": "utf-99"}, "expected the name of a text encoding"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_ARGUMENTS)
def test_wrong_arguments_are_explained(arguments: dict[str, Any], message: str, root: Path, tmp_path: Path) -> None:
    write_csv(root / "captions.csv")
    with pytest.raises(ValueError, match=message):
        prepare(root, tmp_path, **arguments)


def test_two_tables_are_an_error(root: Path, tmp_path: Path) -> None:
    write_csv(root / "captions.csv")
    write_jsonl(root / "metadata.jsonl")
    with pytest.raises(ValueError, match=r"several tables, captions\.csv, metadata\.jsonl: set captions"):
        prepare(root, tmp_path)


def test_a_text_without_its_image_is_listed(root: Path, tmp_path: Path) -> None:
    write_sidecars(root)
    (root / "3.jpg").unlink()
    (root / "4.txt").write_bytes(b"\xe9t\xe9")
    _, rejected = prepare(root, tmp_path)
    reasons = dict(zip(rejected["entry"], rejected["reason"], strict=True))
    assert "no image of this name beside it" in reasons["3.txt"]
    assert "not UTF-8" in reasons["4"]
