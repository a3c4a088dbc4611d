"""Exports of a collection, read by the tools themselves where they run without a server."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bifocal.search import exports
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.exports import export_collection

ITEMS, DIM = 7, 4
UMLAUT = "ü.jpg" if sys.getfilesystemencoding() == "utf-8" else "u.jpg"
NAMES = ['a "quoted", name.jpg', "b\nline.jpg", UMLAUT, "d.jpg", "e.jpg", "f.jpg", "g.jpg"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "BLOCK", 3)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Seven items with odd names, and a tombstone among them."""
    directory = tmp_path_factory.mktemp("made") / "collection"
    model = ModelIdentity("Bifocal-2", "3", "ab" * 32)
    writer = CollectionWriter(
        directory, Description(model, str(directory.parent / "images"), DIM, None), 2
    )
    vectors = np.random.default_rng(0).normal(size=(ITEMS, DIM))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for name, vector in zip(NAMES, vectors, strict=True):
        writer.add(Item(name, name, "cd" * 32, 30, 20), vector)
    metadata = pa.table(
        {"item_id": NAMES, "meta.year": pa.array([1990, None, *range(5)], pa.int16())}
    )
    writer.finish(
        {NAMES[0]: ['a "red" star', "two"]},
        metadata,
        [Item("gone.jpg", "gone.jpg", "ef" * 32, 1, 1)],
    )
    return Collection.open(directory)


def test_the_table_keeps_types_and_names_files(collection: Collection, tmp_path: Path) -> None:
    assert export_collection(collection, tmp_path / "export") == ITEMS
    stored = pq.read_table(tmp_path / "export" / "items.parquet")
    vectors = np.stack(stored["vector"].to_numpy())
    np.testing.assert_array_equal(vectors, collection.vectors[:ITEMS].astype(np.float32))
    assert stored.schema.field("meta_year").type == pa.int16()
    assert stored.schema.field("vector").type == pa.list_(pa.float32(), DIM)
    first = stored.slice(0, 1).to_pylist()[0]
    assert first["captions"] == ['a "red" star', "two"]
    assert (first["meta_year"], first["width"]) == (1990, 30)
    assert first["image"] == str(collection.directory.parent / "images" / NAMES[0])
    assert stored["item_id"].to_pylist() == NAMES


def test_an_export_is_complete_or_absent(collection: Collection, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        export_collection(collection, tmp_path / "export")
    assert list((tmp_path / "export").iterdir()) == []
