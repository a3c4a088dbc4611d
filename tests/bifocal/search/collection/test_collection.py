"""The artifact of a collection: what is written is read, and damage is reported."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bifocal.onnx.files import model_hash
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item

DIM, REGION_DIM = 5, 3
DESCRIPTION = Description(
    ModelIdentity("bifocal", "3", "ab" * 32), "images", DIM, REGION_DIM, preprocessing={"size": 64}
)


def make_items(count: int) -> list[Item]:
    return [
        Item(f"item {number}", f"{number}.jpg", f"{number:064x}", 10 + number, 20)
        for number in range(count)
    ]


def unit_vectors(count: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, DIM))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write(
    directory: Path,
    regions: Sequence[int],
    per_shard: int = 4,
    deleted: int = 0,
    stop: int | None = None,
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Write items with ``regions[k]`` regions each, some tombstones, or stop before item ``stop``
    as a kill does."""
    random, items = np.random.default_rng(1), make_items(len(regions) + deleted)
    vectors = unit_vectors(len(regions), seed=0)
    parts = [random.normal(size=(count, REGION_DIM)) for count in regions]
    boxes = [random.uniform(0, 30, size=(count, 4)) for count in regions]
    writer = CollectionWriter(directory, DESCRIPTION, per_shard)
    for number in range(len(writer.written), len(regions) if stop is None else stop):
        writer.add(items[number], vectors[number], parts[number], boxes[number])
    if stop is None:
        writer.reject("broken.jpg", "the file is empty")
        ids = [item.item_id for item in reversed(items)]
        metadata = pa.table(
            {
                "item_id": ids,
                "meta.year": pa.array(range(len(ids), 0, -1), pa.int16()),
                "meta.image": ids,
            }
        )
        writer.finish({"item 0": ["a dog", "two dogs"]}, metadata, items[len(regions) :])
    return vectors, parts, boxes


@given(
    regions=st.lists(st.integers(0, 3), max_size=9),
    per_shard=st.integers(1, 4),
    deleted=st.integers(0, 2),
    size=st.integers(1, 5),
)
@settings(max_examples=15)
def test_a_collection_is_read_as_it_was_written(
    regions: list[int], per_shard: int, deleted: int, size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        vectors, parts, boxes = write(Path(folder) / "collection", regions, per_shard, deleted)
        collection = Collection.open(Path(folder) / "collection")
        count = len(regions) + deleted
        expected = np.concatenate(
            [vectors.astype(np.float16), np.zeros((deleted, DIM), np.float16)]
        )
        assert len(collection) == count == len(collection.vectors)
        assert collection.ids == [item.item_id for item in make_items(count)]
        assert collection.deleted.tolist() == [False] * len(regions) + [True] * deleted
        assert collection.model == ModelIdentity("bifocal", "3", "ab" * 32)
        assert collection.description.preprocessing == {"size": 64}
        np.testing.assert_array_equal(collection.vectors[:], expected)
        np.testing.assert_array_equal(collection.vectors[::-2], expected[::-2])
        np.testing.assert_array_equal(
            np.concatenate([expected[:0], *collection.vectors.batches(size)]), expected
        )
        order = np.random.default_rng(2).permutation(count)
        np.testing.assert_array_equal(collection.vectors[order], expected[order])
        for row in range(count):
            np.testing.assert_array_equal(collection.vectors[row], expected[row])
            found = collection.regions(row)
            assert (found is None) == (row >= len(regions))
            if found is not None:
                np.testing.assert_array_equal(found.vectors, parts[row].astype(np.float16))
                np.testing.assert_array_equal(found.boxes, boxes[row].astype(np.float32))


def test_items_keep_captions_and_typed_metadata(tmp_path: Path) -> None:
    write(tmp_path, [1, 2], deleted=1)
    collection = Collection.open(tmp_path)
    assert [collection.captions(row) for row in range(3)] == [["a dog", "two dogs"], [], []]
    assert collection.items.column("meta.year").type == pa.int16()
    assert collection.items.column("meta.year").to_pylist() == [
        1,
        2,
        None,
    ]  # a tombstone keeps no values
    assert collection.items.column("meta.image").to_pylist() == ["item 0", "item 1", None]
    assert collection.image(1) == tmp_path / "images" / "1.jpg"
    assert pq.read_table(tmp_path / "rejected.parquet").to_pylist() == [
        {"image": "broken.jpg", "reason": "the file is empty"}
    ]


def test_vectors_are_mapped_and_a_batch_within_a_shard_is_no_copy(tmp_path: Path) -> None:
    write(tmp_path, [1] * 6, per_shard=4)
    first, second, third = Collection.open(tmp_path).vectors.batches(2)
    assert all(isinstance(batch, np.memmap) for batch in (first, second, third))


@pytest.mark.parametrize("stop", [1, 4, 7, 9])
def test_a_killed_writer_resumes_with_the_same_bytes(tmp_path: Path, stop: int) -> None:
    write(tmp_path / "whole", [2] * 10)
    write(tmp_path / "killed", [2] * 10, stop=stop)
    with pytest.raises(
        FileNotFoundError, match=r"holds no complete collection \(it has no collection.json\)"
    ):
        Collection.open(tmp_path / "killed")
    assert len(CollectionWriter(tmp_path / "killed", DESCRIPTION, 4).written) == stop // 4 * 4
    write(tmp_path / "killed", [2] * 10)
    files = {
        path.relative_to(tmp_path / "whole")
        for path in (tmp_path / "whole").rglob("*")
        if path.is_file()
    }
    assert {
        path.relative_to(tmp_path / "killed") for path in (tmp_path / "killed").rglob("*.*")
    } == files
    assert all(
        (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()
        for name in files
    )


def test_shards_of_another_model_are_not_resumed(tmp_path: Path) -> None:
    write(tmp_path, [2] * 10, stop=5)
    other = replace(DESCRIPTION, model=ModelIdentity("bifocal", "4", "cd" * 32))
    with pytest.raises(ValueError, match="holds shards of another model or root"):
        CollectionWriter(tmp_path, other)


def test_the_writer_refuses_wrong_items(tmp_path: Path) -> None:
    writer = CollectionWriter(tmp_path, DESCRIPTION)
    (item,), (vector,) = make_items(1), unit_vectors(1, 0)
    region, box = np.zeros((1, REGION_DIM)), np.zeros((1, 4))
    with pytest.raises(
        ValueError,
        match=r"vector of item 'item 0': shape \(5,\), length 2.000; expected \(5,\) and 1",
    ):
        writer.add(item, 2 * vector, region, box)
    with pytest.raises(ValueError, match=r"length nan"):
        writer.add(item, vector * np.nan, region, box)
    with pytest.raises(ValueError, match="give regions for all items or for none"):
        writer.add(item, vector)
    with pytest.raises(ValueError, match=r"regions of item 'item 0' are \(1, 3\) with 2 boxes"):
        writer.add(item, vector, region, np.zeros((2, 4)))
    writer.add(item, vector, region, box)
    writer.add(item, vector, region, box)
    with pytest.raises(ValueError, match="an item occurs twice among 2"):
        writer.finish()


def test_damaged_collections_are_refused(tmp_path: Path) -> None:
    write(tmp_path, [1] * 6)
    items, vectors = tmp_path / "items.parquet", tmp_path / "vectors" / "00001.npy"
    table, stored = pq.read_table(items), vectors.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Collection.open(tmp_path)

    vectors.write_bytes(stored[:-10])
    refused("00001.npy is damaged")
    np.save(vectors, np.zeros((2, DIM + 1), np.float16))
    refused(r"00001.npy has shape \(2, 6\), expected \(2, 5\)")
    vectors.unlink()
    refused("00001.npy is damaged")
    vectors.write_bytes(stored)
    for column, values, message in (
        ("row", pa.array([0, 1, 2, 3, 0, 0], pa.int32()), "to one vector twice"),
        (
            "row",
            pa.array([0, 1, 2, 3, 0, 2], pa.int32()),
            "refers to vectors that the shards do not have",
        ),
        (
            "shard",
            pa.array([0, 0, 0, 0, 1, 7], pa.int32()),
            "refers to vectors that the shards do not have",
        ),
        ("item_id", pa.array(list("abcdea")), "has an item_id twice"),
        (
            "width",
            pa.array([1.0] * 6),
            "column 'width': type double with 0 nulls, expected int32 without nulls",
        ),
        ("sha256", pa.array([None] * 6, pa.string()), "column 'sha256': type string with 6 nulls"),
        ("deleted", pa.array([False] * 5 + [True]), "has 5 items and 1 tombstones"),
    ):
        pq.write_table(
            table.set_column(table.schema.get_field_index(column), column, values), items
        )
        refused(message)
    pq.write_table(table.append_column("color", pa.array(["red"] * 6)), items)
    refused("has the column 'color': columns of users start with 'meta.'")
    pq.write_table(table.drop_columns(["captions"]), items)
    refused("has no column 'captions'")
    pq.write_table(table, items)
    description = tmp_path / "collection.json"
    description.write_text(json.dumps(json.loads(description.read_text()) | {"schema_version": 9}))
    refused("has schema version 9, expected")


def test_the_hash_of_a_model_ignores_reports_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no exported model"):
        model_hash(tmp_path)
    (tmp_path / "image_encoder.onnx").write_bytes(b"graph")
    first = model_hash(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    assert model_hash(tmp_path) == first
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "vocabulary.json").write_text("{}")
    second = model_hash(tmp_path)
    assert second != first
    (tmp_path / "text" / "vocabulary.json").rename(tmp_path / "vocabulary.json")
    assert model_hash(tmp_path) not in (first, second)
