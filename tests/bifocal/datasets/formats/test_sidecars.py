"""Files beside images: their suffix in any case, and files that must not be read as a whole."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.formats.caption_table import CaptionTable
from bifocal.datasets.formats.folder import Folder, list_folder
from bifocal.datasets.formats.sidecars import CAPTION, IMAGE, read_sidecars


def read(root: Path, image: str = "0.JPG") -> CaptionTable:
    (root / image).touch()
    return read_sidecars(list_folder(root))[0]


@pytest.mark.parametrize("suffix", ["txt", "TXT", "Txt"])
def test_the_case_of_a_suffix_does_not_matter(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"0.{suffix}").write_text("a dog\n")
    (
        tmp_path
        / f"0.{suffix.replace('txt', 'json').replace('TXT', 'JSON').replace('Txt', 'Json')}"
    ).write_text('{"year": 3}')
    assert read(tmp_path).rows == [("0.JPG", {IMAGE: "0.JPG", CAPTION: ["a dog"], "year": 3})]


def test_all_keys_but_that_of_the_caption_are_the_users(tmp_path: Path) -> None:
    values = {"image": "mine", "text": "mine", "caption": "a dog"}
    (tmp_path / "0.json").write_text(json.dumps(values))
    assert read(tmp_path).rows == [
        ("0.JPG", {IMAGE: "0.JPG", CAPTION: "a dog", "image": "mine", "text": "mine"})
    ]
    (tmp_path / "0.txt").write_text("a cat")
    assert read(tmp_path).rows == [("0.JPG", {IMAGE: "0.JPG", CAPTION: ["a cat"], **values})]


NAMED = st.text("ab", min_size=1, max_size=2)


@given(
    images=st.sets(st.tuples(NAMED, NAMED), max_size=5),
    texts=st.sets(st.tuples(NAMED, NAMED | st.just("")), max_size=5),
)
def test_images_of_a_sample_share_its_one_text_that_no_image_has_for_itself(
    images: set[tuple[str, str]], texts: set[tuple[str, str]]
) -> None:
    own = {text: f"{'.'.join(filter(None, text))}.txt" for text in texts}
    free = [text for text in texts if text not in images]
    expected = {}
    for image in images:
        shared = [own[text] for text in free if text[0] == image[0]]
        chosen = own.get(image) or (shared[0] if len(shared) == 1 else None)
        if chosen:
            expected[f"{'.'.join(image)}.jpg"] = [chosen]
    with TemporaryDirectory() as name:
        for file in own.values():
            (Path(name) / file).write_text(file)
        folder = Folder(
            Path(name), sorted(f"{'.'.join(each)}.jpg" for each in images), [*own.values()]
        )
        found = read_sidecars(folder, by_key=True)[0]
        assert {image: row[CAPTION] for image, row in found.rows} == expected
        alone = read_sidecars(folder)[0]
        assert {image for image, _ in alone.rows} == {
            f"{'.'.join(image)}.jpg" for image in images & texts
        }


def test_files_that_cannot_be_a_caption_are_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.txt")
    with (tmp_path / "1.json").open("wb") as file:
        file.truncate(8 * 2**30)  # sparse
    (tmp_path / "2.json").write_text("[" * 100_000)
    (tmp_path / "3.json").write_text(
        json.dumps({f"key {number}": 1 for number in range(20_000)} | {"caption": "a"})
    )
    (tmp_path / "4.txt").write_bytes(b"\xff")
    (tmp_path / "5.txt").write_text("a dog")
    for number in range(6):
        table = read(tmp_path, f"{number}.jpg")
    assert [row[CAPTION] for _, row in table.rows] == [["a dog"]]
    reasons = {entry.entry: entry.reason for entry in table.rejected}
    for entry, reason in {
        "0.jpg": "0.txt: a named pipe or a device, expected a file",
        "1.jpg": "1.json: too large: a file of 8589934592 bytes, at most 1048576 are accepted",
        "2.jpg": "2.json is not JSON: maximum recursion depth",
        "3.jpg": "further columns, and a table has at most 1,000",
        "4.jpg": "4.txt is not UTF-8 text",
    }.items():
        assert reason in reasons[entry]
