"""Folder and date of image files as metadata of a collection."""

import os
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.sources import Source, files_source, with_origins
from bifocal.search.collection.update import CollectionUpdate
from bifocal.search.collection.writer import CollectionWriter, Item

CHANGED = datetime(2021, 2, 3, 4, 5, 6)


def write_photo(file: Path, taken: str = "", tag: int = 0x9003) -> None:
    exif = Image.Exif()
    if taken:
        (exif.get_ifd(0x8769) if tag == 0x9003 else exif)[tag] = taken
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6)).save(file, exif=exif)
    os.utime(file, (CHANGED.timestamp(), CHANGED.timestamp()))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    write_photo(folder / "a.jpg", "2023:05:06 07:08:09")
    write_photo(folder / "Oslo" / "b.jpg", "2022:01:02 03:04:05", tag=0x0132)
    write_photo(folder / "Oslo" / "day 1" / "c.jpg", "0000:00:00 00:00:00")
    write_photo(folder / "Oslo" / "d.png")
    return folder


def origins(photos: Path) -> dict[str, list[object]]:
    source = files_source(photos, photos.parent / "collection")
    table = with_origins(source, source.entries)
    assert table is not None
    found: dict[str, list[object]] = table.to_pydict()
    return found


def test_the_date_is_that_of_the_photograph_else_of_the_file(photos: Path) -> None:
    found = origins(photos)
    assert dict(
        zip(
            found["item_id"],
            zip(found["meta.folder"], found["meta.date"], strict=True),
            strict=True,
        )
    ) == {
        "a.jpg": ("", datetime(2023, 5, 6, 7, 8, 9)),
        "Oslo/b.jpg": ("Oslo", datetime(2022, 1, 2, 3, 4, 5)),
        "Oslo/day 1/c.jpg": ("Oslo/day 1", CHANGED),
        "Oslo/d.png": ("Oslo", CHANGED),
    }


def test_unchanged_files_keep_their_date_and_are_not_opened(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = files_source(photos, tmp_path / "new")
    states = np.arange(4 * len(source.entries), dtype=np.int64).reshape(-1, 4) + 1
    writer = CollectionWriter(
        tmp_path / "previous",
        Description(ModelIdentity("model", None, "0" * 64), str(photos), 2, None),
    )
    for entry, state in zip(source.entries, states, strict=True):
        item = Item(entry.item_id, entry.image, "0" * 64, 8, 6, tuple(state.tolist()))
        writer.add(item, np.array([1.0, 0.0]))
    previous = with_origins(source, source.entries)
    writer.finish(metadata=previous)
    states[2] += 1
    opened: list[str] = []
    opener = Source.opener
    monkeypatch.setattr(
        Source,
        "opener",
        lambda source, entry: opened.append(entry.item_id) or opener(source, entry),
    )
    update = CollectionUpdate(Collection.open(tmp_path / "previous"), source.entries, states)
    found = with_origins(source, source.entries, update.dates())
    assert found is not None
    assert previous is not None
    assert opened == [source.entries[2].item_id]
    assert found["meta.date"].to_pylist()[:2] == previous["meta.date"].to_pylist()[:2]


def test_columns_of_the_user_stay(photos: Path) -> None:
    (photos / "metadata.csv").write_text("image,date\na.jpg,spring\nOslo/b.jpg,winter\n")
    found = origins(photos)
    assert sorted(map(str, found["meta.date"])) == ["None", "None", "spring", "winter"]
    assert sorted(map(str, found["meta.folder"])) == ["", "Oslo", "Oslo", "Oslo/day 1"]


def test_a_listed_image_that_is_a_link_out_now_is_not_read(photos: Path, tmp_path: Path) -> None:
    """Dates, hashes and vectors are read by the same function."""
    source = files_source(photos, tmp_path / "new")
    entry = next(entry for entry in source.entries if entry.image == "a.jpg")
    assert source.digest(entry) is not None
    secret = (photos / "a.jpg").rename(tmp_path / "secret.jpg")
    (photos / "a.jpg").symlink_to(secret)
    assert source.digest(entry) is None
    dates = with_origins(source, source.entries)
    assert dates is not None
    assert None in dates["meta.date"].to_pylist()
    opener = source.opener(entry)
    with pytest.raises(ValueError, match="not a path inside its folder"):
        opener()
    own = files_source(photos, tmp_path / "own", follow_links=True)
    assert own.digest(entry) is not None
