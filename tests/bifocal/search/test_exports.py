"""Exports of a collection, read by the tools themselves where they run without a server."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bifocal.search import exports
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.exports import FORMATS, export_collection, point_id

ITEMS, DIM = 7, 4
NAMES = ['a "quoted", name.jpg', "b\nline.jpg", "ü.jpg", "d.jpg", "e.jpg", "f.jpg", "g.jpg"]


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


def cosines(collection: Collection, query: int) -> list[int]:
    vectors = collection.vectors[:ITEMS].astype(float)
    return np.argsort(
        -(vectors @ vectors[query]) / np.linalg.norm(vectors, axis=1), kind="stable"
    ).tolist()


def test_mlcroissant_loads_the_items(
    collection: Collection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import mlcroissant  # takes a second

    assert export_collection(collection, tmp_path / "export", "croissant") == ITEMS
    dataset = mlcroissant.Dataset(jsonld=tmp_path / "export" / "croissant.json")
    records = list(dataset.records("items"))
    assert [record["items/item_id"].decode() for record in records] == NAMES
    assert [text.decode() for text in records[0]["items/captions"]] == ['a "red" star', "two"]
    assert records[0]["items/meta_year"] == 1990
    assert records[0]["items/image"].decode().endswith(NAMES[0])
    for record, vector in zip(records, collection.vectors[:ITEMS].astype(np.float32), strict=True):
        np.testing.assert_allclose(np.array(record["items/vector"]), vector)
    assert not [entry for entry in caplog.records if entry.levelname == "ERROR"]


def test_lancedb_creates_a_table_and_searches_it(collection: Collection, tmp_path: Path) -> None:
    import lancedb  # takes a second, and one of two workers needs it

    assert export_collection(collection, tmp_path / "export", "lancedb") == ITEMS
    stored = pq.read_table(tmp_path / "export" / "items.parquet")
    assert stored.schema.field("meta_year").type == pa.int16()
    table = lancedb.connect(tmp_path / "db").create_table("items", stored)
    for query in (0, 4):
        hits = (
            table.search(collection.vectors[query].astype(np.float32))
            .metric("cosine")
            .limit(ITEMS)
            .to_list()
        )
        assert [hit["item_id"] for hit in hits] == [
            NAMES[row] for row in cosines(collection, query)
        ]
    first = (
        table.search(collection.vectors[0].astype(np.float32))
        .metric("cosine")
        .limit(1)
        .to_list()[0]
    )
    assert first["captions"] == ['a "red" star', "two"]
    assert (first["meta_year"], first["width"]) == (1990, 30)
    assert first["image"] == str(collection.directory.parent / "images" / NAMES[0])


def test_qdrant_accepts_the_requests_and_searches_the_points(
    collection: Collection, tmp_path: Path
) -> None:
    from qdrant_client import (
        QdrantClient,
        models,
    )  # takes two seconds, and one of two workers needs it

    export_collection(collection, tmp_path / "export", "qdrant")
    client = QdrantClient(":memory:")
    body = models.CreateCollection(
        **json.loads((tmp_path / "export" / "collection.json").read_text())
    )
    client.create_collection("items", vectors_config=body.vectors)
    files = sorted((tmp_path / "export" / "points").iterdir())
    assert [path.name for path in files] == ["00000.json", "00001.json", "00002.json"]
    for path in files:
        client.upsert("items", models.PointsList(**json.loads(path.read_text())).points)
    for query in (0, 4):
        hits = client.query_points(
            "items", query=collection.vectors[query].astype(float).tolist(), limit=ITEMS
        ).points
        payloads: list[dict[str, Any]] = [hit.payload or {} for hit in hits]
        assert [payload["item_id"] for payload in payloads] == [
            NAMES[row] for row in cosines(collection, query)
        ]
    (point,) = client.retrieve("items", [str(point_id(NAMES[0]))])
    assert point.payload is not None
    assert (point.payload["meta"], point.payload["captions"]) == (
        {"year": 1990},
        ['a "red" star', "two"],
    )


def test_pgvector_gets_a_table_and_rows_for_copy(collection: Collection, tmp_path: Path) -> None:
    """No PostgreSQL runs here: the files are compared with the documented text formats of COPY and
    pgvector."""
    export_collection(collection, tmp_path / "export", "pgvector")
    sql = (tmp_path / "export" / "import.sql").read_text()
    assert f"embedding halfvec({DIM}) NOT NULL" in sql
    declared = re.findall(r"^  (\w+) \w+", sql, flags=re.MULTILINE)
    with (tmp_path / "export" / "items.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == declared
    assert (
        f"\\copy bifocal_2 ({', '.join(header)}) FROM 'items.csv' WITH (FORMAT csv, HEADER true)"
        in sql
    )
    assert [row[0] for row in rows] == NAMES
    values = [dict(zip(header, row, strict=True)) for row in rows]
    assert [json.loads(value["meta"])["year"] for value in values] == [1990, None, *range(5)]
    assert all(
        re.fullmatch(r"\[-?[\d.e-]+(,-?[\d.e-]+)*\]", value["embedding"]) for value in values
    )
    read = np.array([json.loads(value["embedding"]) for value in values]).astype(np.float16)
    np.testing.assert_array_equal(read, collection.vectors[:ITEMS])


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_is_complete_or_absent(collection: Collection, tmp_path: Path, name: str) -> None:
    (tmp_path / "export").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        export_collection(collection, tmp_path / "export", name)
    with pytest.raises(KeyError, match="available: croissant, lancedb, pgvector, qdrant"):
        export_collection(collection, tmp_path / "other", "milvus")
    assert not (tmp_path / "other").exists()
