"""Deleted items: no file of a collection or an index keeps the bytes of their vectors."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from bifocal.durable import change
from bifocal.search import Search, SearchIndex
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.deletion import delete_from_collection, delete_from_index
from bifocal.search.index.build import IndexSettings, build_index
from bifocal.search.index.exact import unit_vectors
from bifocal.search.index.files import IndexDescription
from bifocal.search.items import Items
from tests.margins import margin

COUNT, D = 400, 16
GONE = [3, 4, 9, 399]
NAMES = [f"item {row}" for row in range(COUNT)]


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float16]:
    return unit_vectors(np.random.default_rng(0).normal(size=(COUNT, D))).astype(np.float16)


def write(
    folder: Path, vectors: NDArray[np.float16], count: int = COUNT
) -> tuple[NDArray[np.float16], list[str]]:
    """Write a collection of three shards with regions and secret texts; return the regions and the
    texts."""
    regions = np.random.default_rng(1).normal(size=(count, 2, 5)).astype(np.float16)
    writer = CollectionWriter(
        folder, Description(ModelIdentity("m", None, "ab"), "images", D, 5), items_per_shard=150
    )
    for row in range(count):
        writer.add(
            Item(NAMES[row], f"{row}.jpg", f"{row:064x}", 8, 8),
            vectors[row],
            regions[row],
            np.full((2, 4), row),
        )
    secrets = [f"secret-{row:04d}" for row in range(count)]
    metadata = pa.table(
        {"item_id": NAMES[:count], "meta.place": [f"place-{row:04d}" for row in range(count)]}
    )
    writer.finish({name: [text] for name, text in zip(NAMES, secrets, strict=False)}, metadata)
    (folder / "images").mkdir()
    for row in range(count):
        (folder / "images" / f"{row}.jpg").write_bytes(b"jpg")
    return regions, secrets


def found_in(folder: Path, content: bytes) -> list[str]:
    return [
        path.name
        for path in sorted(folder.rglob("*"))
        if path.is_file() and content in path.read_bytes()
    ]


def test_no_byte_of_a_deleted_item_stays_in_a_collection(
    vectors: NDArray[np.float16], tmp_path: Path
) -> None:
    regions, secrets = write(tmp_path, vectors)
    previous = [found_in(tmp_path, vectors[row].tobytes()) for row in GONE]
    assert previous == [["00000.npy"], ["00000.npy"], ["00000.npy"], ["00002.npy"]]
    description = delete(tmp_path, *(NAMES[row] for row in GONE))
    assert (description.items, description.deleted) == (COUNT - 4, 4)
    for row in GONE:
        texts = (secrets[row].encode(), f"place-{row:04d}".encode())
        for content in (
            vectors[row].tobytes(),
            regions[row].tobytes(),
            regions[row, 1].tobytes(),
            *texts,
        ):
            assert found_in(tmp_path, content) == []
        assert not (tmp_path / "images" / f"{row}.jpg").exists()
    collection = Collection.open(tmp_path)
    assert np.flatnonzero(collection.deleted).tolist() == GONE
    assert not collection.vectors[GONE].any()
    kept = [row for row in range(COUNT) if row not in GONE]
    np.testing.assert_array_equal(collection.vectors[kept], vectors[kept])
    for row in (5, 398):
        own = collection.regions(row)
        assert own is not None
        np.testing.assert_array_equal(own.vectors, regions[row])
        np.testing.assert_array_equal(own.boxes, np.full((2, 4), row))
    assert collection.regions(3) is None
    assert (collection.captions(3), collection.captions(5)) == ([], [secrets[5]])
    assert (tmp_path / "images" / "5.jpg").is_file()
    assert delete(tmp_path, NAMES[3], NAMES[7]).deleted == 5  # a tombstone may be named again


def delete(folder: Path, *item_ids: str) -> Description:
    with change(folder) as changed:
        return delete_from_collection(changed, folder, item_ids)


def delete_of_index(folder: Path, *item_ids: str) -> float:
    with change(folder) as changed:
        return delete_from_index(changed, folder, item_ids)


def test_an_interrupted_deletion_deletes_nothing(
    vectors: NDArray[np.float16], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, vectors, count=8)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Description, "write", die)
        with pytest.raises(KeyboardInterrupt):
            delete(tmp_path, NAMES[1])
    assert not Collection.open(tmp_path).deleted.any()
    delete(tmp_path, NAMES[1])
    assert Collection.open(tmp_path).deleted.tolist() == [False, True, *[False] * 6]


def test_an_unknown_item_deletes_nothing(vectors: NDArray[np.float16], tmp_path: Path) -> None:
    write(tmp_path, vectors, count=8)
    with pytest.raises(ValueError, match="has no item 'x' among its 8: nothing was deleted"):
        delete(tmp_path, NAMES[0], "x")
    assert Collection.open(tmp_path).description.deleted == 0
    index = SearchIndex.of(NAMES[:8], vectors[:8])
    (tmp_path / "index").mkdir()
    index.write(tmp_path / "index")
    with pytest.raises(ValueError, match="has no item 'x'"):
        delete_of_index(tmp_path / "index", "x")
    assert len(SearchIndex.open(tmp_path / "index")) == 8


@pytest.mark.parametrize("factory", ["exact", "IVF8,Flat", "PCA16,IVF8,Flat", "HNSW8,Flat"])
def test_no_byte_of_a_deleted_item_stays_in_an_index(
    factory: str, vectors: NDArray[np.float16], tmp_path: Path
) -> None:
    table = pa.table({"item_id": NAMES, "meta.place": [f"place-{row:04d}" for row in range(COUNT)]})
    bias = np.linspace(0.1, 0.2, COUNT).astype(np.float32)
    exact = SearchIndex(table, vectors, bias, IndexDescription(D, COUNT, hubness={"name": "CSLS"}))
    queries = np.random.default_rng(2).normal(size=(20, D))
    build_index(exact, IndexSettings(factory, recall=0.9), queries).write(tmp_path)
    opened = SearchIndex.open(tmp_path)  # a process that still has the previous files
    assert opened.keywords is not None
    assert opened.keywords.search("0003", 5).tolist() == [3]
    secrets = [vectors[row].tobytes() for row in GONE] + [bias[row].tobytes() for row in GONE]
    if "PCA" not in factory and factory != "exact":
        secrets += [vectors[row].astype(np.float32).tobytes() for row in GONE]
        assert found_in(tmp_path, secrets[-1]) == ["index.faiss"]
    assert delete_of_index(tmp_path, *(NAMES[row] for row in GONE)) == pytest.approx(0.01)
    for content in [*secrets, *(f"place-{row:04d}".encode() for row in GONE)]:
        assert found_in(tmp_path, content) == []
    assert Search(opened).batch(vectors[[3]], 1)[0][0].id == NAMES[3]
    after = SearchIndex.open(tmp_path)
    assert after.keywords is not None
    assert [after.keywords.search(f"{row:04d}", 5).tolist() for row in (*GONE, 0)] == [
        [],
        [],
        [],
        [],
        [0],
    ]
    hits = Search(after).batch(vectors[:60], 1)
    live = [row for row in range(60) if row not in GONE]
    assert np.mean([hits[row][0].id == NAMES[row] for row in live]) > 1 - margin(len(live))
    assert not {hit.id for found in Search(after).batch(vectors[GONE], COUNT) for hit in found} & {
        NAMES[r] for r in GONE
    }


@pytest.mark.parametrize("absolute", [False, True])
def test_a_foreign_collection_deletes_no_file_outside(
    vectors: NDArray[np.float16], tmp_path: Path, absolute: bool
) -> None:
    folder, outside = tmp_path / "collection", tmp_path / "private.jpg"
    outside.write_bytes(b"jpg")
    write(folder, vectors)
    items = pq.read_table(folder / "items.parquet")
    names = [str(outside) if absolute else "../../private.jpg", *items["image"].to_pylist()[1:]]
    place = items.schema.get_field_index("image")
    pq.write_table(
        items.set_column(place, items.schema.field("image"), pa.array(names)),
        folder / "items.parquet",
    )
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="not a path inside"):
        delete(folder, NAMES[0])
    assert outside.exists()
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    collection = Collection.open(folder)
    with pytest.raises(ValueError, match="not a path inside"):
        collection.image(0)
    items = Items(collection.items, folder / collection.description.root)
    assert items.file(0) is None
    assert items.file(1) == folder / "images" / "1.jpg"
    (folder / "images" / "1.jpg").unlink()
    (folder / "images" / "1.jpg").symlink_to(outside)
    assert items.file(1) is None
