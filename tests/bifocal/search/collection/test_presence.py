"""No information about an image is not the information that it is gone."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.presence import MANY, with_former_values, with_unknown
from bifocal.search.collection.sources import Source, files_source
from bifocal.search.collection.writer import CollectionWriter, Item
from tests.bifocal.datasets.corpora.image_folder.writers import picture
from tests.bifocal.users import other_user

NAMES = [f"{folder}{number}.jpg" for folder in ("", "a/", "a/b/", "c/") for number in range(6)]


@contextmanager
def photos(names: list[str]) -> Iterator[Path]:
    """Yield a folder that another user can read."""
    with TemporaryDirectory() as folder:
        root = Path(folder) / "photos"
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(picture(1))
        for path in (root.parent, *root.parent.rglob("*")):
            path.chmod(0o755)
        yield root


def collected(root: Path, source: Source) -> Collection:
    """Return a collection of the images of a source."""
    folder = root.parent / "previous"
    identity = ModelIdentity("model", None, "0" * 64)
    writer = CollectionWriter(folder, Description(identity, str(root), 2, None))
    for entry in source.entries:
        writer.add(Item(entry.item_id, entry.image, "0" * 64, 8, 6), np.array([1.0, 0.0]))
    writer.finish(source.captions, source.metadata)
    return Collection.open(folder)


def kept(source: Source) -> set[str]:
    return {entry.item_id for entry in source.entries if entry.kept}


@given(gone=st.sets(st.sampled_from(NAMES[1:])), cleared=st.booleans(), prune=st.booleans())
def test_images_below_an_empty_folder_and_many_gone_ones_stay(
    gone: set[str], cleared: bool, prune: bool
) -> None:
    with photos(NAMES) as root:
        previous = collected(root, files_source(root, root))
        for name in gone:
            (root / name).unlink()
        if cleared:  # as a file manager does; a disk that is away leaves its empty folder
            for folder in ("a/b", "a", "c"):
                if not any((root / folder).iterdir()):
                    (root / folder).rmdir()
        source = with_unknown(files_source(root, root), previous, prune=prune)
        unknown = {
            name
            for name in gone
            for parent in PurePosixPath(name).parents
            if (root / parent).is_dir() and not any((root / parent).iterdir())
        }
        rest = gone - unknown
        for folder in ("", "a/", "a/b/", "c/"):
            lost = sum(name.startswith(folder) for name in rest)
            if lost >= MANY and 2 * lost >= sum(name.startswith(folder) for name in NAMES):
                unknown |= rest
        assert kept(source) == (set() if prune else unknown)
        assert {entry.item_id for entry in source.entries} == set(NAMES) - gone | kept(source)
        assert len(source.rejected) == 0 or kept(source)
        shutil.rmtree(previous.directory)


@pytest.mark.parametrize("prune", [False, True])
def test_a_folder_that_cannot_be_listed_keeps_its_images(prune: bool) -> None:
    with photos(NAMES) as root:
        previous = collected(root, files_source(root, root))
        (root / "a").chmod(0o000)
        with other_user():
            source = with_unknown(files_source(root, root), previous, prune=prune)
        (root / "a").chmod(0o755)
        assert kept(source) == {name for name in NAMES if name.startswith("a/")}
        assert ("a", "cannot be listed: Permission denied") in source.rejected


@pytest.mark.parametrize(
    "broken",
    [
        b'image,caption,price\n0.jpg,"a dog,5\n',
        b"",
        b"image,caption,price\n",
        b"im",
        b"image,caption,price\n0.jpg,a d\xe9g,5\n1.jpg,b\n2.jpg,c\n",
        None,
    ],
)
def test_a_table_that_cannot_be_read_keeps_captions_and_values(broken: bytes | None) -> None:
    names = ["0.jpg", "1.jpg"]
    with photos(names) as root:
        table = root / "captions.csv"
        table.write_text("image,caption,price\n0.jpg,a dog,5\n1.jpg,a cat,6\n")
        first = files_source(root, root)
        previous = collected(root, first)
        if broken is None:
            table.unlink()
            table.mkdir()
        else:
            table.write_bytes(broken)
        second = files_source(root, root)
        assert second.unread
        captions, metadata = with_former_values(
            second.captions, second.metadata, previous.items, set(names)
        )
        assert captions["0.jpg"] == ["a dog"]
        if metadata is not None:
            assert metadata.column("meta.price").to_pylist() == [5, 6]
        (table.rmdir if table.is_dir() else table.unlink)()  # that is information
        assert not files_source(root, root).unread


@pytest.mark.parametrize("suffix", [".txt", ".json"])
def test_a_text_that_cannot_be_read_is_unknown_and_a_missing_one_is_gone(suffix: str) -> None:
    names = ["0.jpg", "1.jpg"]
    with photos(names) as root:
        file = root / f"0{suffix}"
        file.write_bytes(b"\xff")
        assert files_source(root, root).unread_captions == ["0.jpg"]
        file.unlink()
        file.symlink_to("elsewhere")
        assert files_source(root, root).unread_captions == ["0.jpg"]
        file.unlink()
        file.mkdir()
        assert files_source(root, root).unread_captions == ["0.jpg"]
        (root / "captions.csv").symlink_to("elsewhere.csv")
        assert files_source(root, root).unread == ["captions.csv"]
        file.rmdir()
        assert not files_source(root, root).unread_captions


VALUES: Any = st.none() | st.integers(0, 9)


@given(new=st.lists(VALUES, min_size=3, max_size=3), old=st.lists(VALUES, min_size=3, max_size=3))
def test_a_value_that_is_there_replaces_the_former_one(new: list[Any], old: list[Any]) -> None:
    ids = ["a", "b", "c"]
    former = pa.table(
        {"item_id": ids, "captions": [["x"], [], ["z"]], "meta.v": pa.array(old, pa.int64())}
    )
    metadata = pa.table({"item_id": ids, "meta.v": pa.array(new, pa.int64())})
    captions, found = with_former_values({"a": ["y"]}, metadata, former, {"a", "b"})
    assert found is not None
    expected = [old[n] if new[n] is None and n < 2 else new[n] for n in range(3)]
    assert found.column("meta.v").to_pylist() == expected
    assert captions["a"] == ["y"]
    assert "c" not in captions
