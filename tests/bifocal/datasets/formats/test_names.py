"""Names of a table mean their own images, by one rule for the whole table, or none."""

import unicodedata
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.formats.folder import Folder, list_folder
from bifocal.datasets.formats.names import match_names

PARTS = st.sampled_from(["cats", "dogs", "train", "Été", "a b", "0"])
FILES = st.sampled_from(["000.jpg", "001.JPG", "x y.png", "é.webp", "100%.jpg"])
PATHS = st.builds(lambda parts, file: "/".join([*parts, file]), st.lists(PARTS, max_size=2), FILES)
WHOLE = st.lists(PATHS, unique_by=lambda name: name.casefold(), min_size=1, max_size=8)
SPELL = {
    "exact": str,
    "dot": lambda name: f"./{name}",
    "blank": lambda name: f" {name} ",
    "windows": lambda name: name.replace("/", "\\"),
    "url": quote,
    "case": str.swapcase,
    "decomposed": lambda name: unicodedata.normalize("NFD", name),
    "no suffix": lambda name: name.rpartition(".")[0],
}


@pytest.mark.parametrize("spelling", SPELL)
@given(whole=WHOLE, data=st.data())
def test_names_of_a_whole_copy_are_found_and_those_of_a_part_are_never_confused(
    spelling: str, whole: list[str], data: st.DataObject
) -> None:
    there = data.draw(st.sets(st.sampled_from(whole)))
    places = ["/old/place/", "C:\\my photos\\", "s3://bucket/"]
    prefix = data.draw(st.sampled_from(["", *(places if spelling not in ("dot", "blank") else ())]))
    names = {prefix + SPELL[spelling](name): name for name in whole}
    for images in (whole, sorted(there)):
        found = match_names(names, Folder(Path("/photos"), sorted(images))).images
        assert all(names[name] == image for name, image in found.items())
        assert len(set(found.values())) == len(found)
        if images == whole and (prefix == "" or len(whole) == 1 or spelling != "no suffix"):
            stems = [name.rpartition(".")[0].casefold() for name in whole]
            if len(set(stems)) == len(stems):
                assert set(found) == set(names)


@given(whole=WHOLE, folder=PARTS, data=st.data())
def test_images_that_moved_into_one_folder_are_found(
    whole: list[str], folder: str, data: st.DataObject
) -> None:
    there = data.draw(st.sets(st.sampled_from(whole), min_size=1))
    moved = Folder(Path("/photos"), sorted(f"new/{name}" for name in there))
    matched = match_names(whole, moved)
    assert all(image == f"new/{name}" for name, image in matched.images.items())
    if len({name.rpartition("/")[2].casefold() for name in whole}) == len(whole):
        assert matched.images == {name: f"new/{name}" for name in there}
        assert matched.rule == "the names of images are read below 'new/'"


def test_a_flat_copy_of_one_of_several_folders_is_not_guessed() -> None:
    names = [f"{kind}/{n}.jpg" for kind in ("cats", "dogs") for n in range(3)]
    flat = Folder(Path("/photos"), ["0.jpg", "1.jpg", "2.jpg"])
    assert match_names(names, flat).images == {}
    two = Folder(Path("/photos"), [f"{kind}/{n}.jpg" for kind in "ab" for n in range(3)])
    assert match_names(["0.jpg", "1.jpg"], two).images == {}


def test_a_table_below_the_folder_is_read_from_its_own_folder_or_from_the_top() -> None:
    folder = Folder(Path("/photos"), ["0.jpg", "train/1.jpg", "train/2.jpg"])
    names = ["0.jpg", "1.jpg"]
    assert match_names(names, folder, "train/").images == {"1.jpg": "train/1.jpg"}
    assert match_names(["train/1.jpg"], folder, "tables/").images == {"train/1.jpg": "train/1.jpg"}


def test_an_image_has_one_name_in_any_spelling_of_its_path(tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    for name in ("a.jpg", ".hidden/b.jpg"):
        (tmp_path / name).touch()
    folder = list_folder(tmp_path)
    named = match_names(["a.jpg", "./a.jpg", " a.jpg", ".\\a.jpg", ".hidden/b.jpg"], folder).images
    assert set(named.values()) == {"a.jpg", ".hidden/b.jpg"}


def test_one_stray_image_does_not_hide_the_folder_of_all() -> None:
    names = [f"{number}.jpg" for number in range(4)]
    images = ["0.jpg", *(f"Images/{name}" for name in names)]
    found = match_names(names, Folder(Path("/photos"), images)).images
    assert found == {"0.jpg": "0.jpg"} | {name: f"Images/{name}" for name in names[1:]}
    partly = match_names([*names, "4.jpg"], Folder(Path("/photos"), images)).images
    assert partly == {"0.jpg": "0.jpg"}
