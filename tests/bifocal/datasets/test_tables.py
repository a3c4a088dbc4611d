"""Parquet tables and their schemas."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bifocal.datasets.tables import CAPTIONS, IMAGES, PHRASES, read_table, write_table

IMAGE = {"image_id": "a", "path": "a.jpg", "width": 4, "height": 3, "split": "train", "sha256": "0"}
PHRASE = {
    "phrase_id": 0,
    "image_id": "a",
    "caption_id": 3,
    "phrase": "two dogs",
    "boxes": [[0, 0, 1, 2], [1, 1, 2, 2]],
    "category": "animals",
    "mask": "03",
}


def test_images_are_read_as_written(tmp_path):
    rows = [IMAGE, {**IMAGE, "image_id": "b", "path": None, "sha256": None}]
    write_table(tmp_path / "images.parquet", IMAGES, rows)
    table = read_table(tmp_path / "images.parquet", IMAGES)
    assert list(table["image_id"]) == ["a", "b"]
    assert list(table["path"].isna()) == [False, True]
    assert table["width"].dtype == np.int32


def test_phrases_keep_integer_ids_masks_and_arrays_of_boxes(tmp_path):
    bare = {"phrase_id": 1, "image_id": "a", "phrase": "a dog", "boxes": []}
    write_table(tmp_path / "phrases.parquet", PHRASES, [PHRASE, bare])
    table = read_table(tmp_path / "phrases.parquet", PHRASES)
    assert list(table.columns) == PHRASES.names
    assert table["caption_id"].dtype == pd.Int64Dtype()
    assert (table["caption_id"][0], table["caption_id"].isna()[1]) == (3, True)
    np.testing.assert_array_equal(table["boxes"][0], np.array(PHRASE["boxes"], np.float32))
    assert table["boxes"][1].shape == (0, 4)
    for column in ("category", "mask"):
        assert (table[column][0], table[column].isna()[1]) == (PHRASE[column], True)


def test_empty_table_has_its_columns(tmp_path):
    write_table(tmp_path / "phrases.parquet", PHRASES, [])
    table = read_table(tmp_path / "phrases.parquet", PHRASES)
    assert (len(table), list(table.columns)) == (0, PHRASES.names)


def test_table_without_its_schema_is_rejected(tmp_path):
    path = tmp_path / "captions.parquet"
    with pytest.raises(FileNotFoundError, match="no complete dataset"):
        read_table(path, CAPTIONS)
    path.write_bytes(b"caption_id,text\n")
    with pytest.raises(ValueError, match=r"captions\.parquet is not a Parquet table"):
        read_table(path, CAPTIONS)
    columns = {
        "caption_id": pa.array([0], pa.int64()),
        "image_id": pa.array(["a"]),
        "text": pa.array(["a dog"]),
    }
    pq.write_table(pa.table({name: columns[name] for name in ("caption_id", "image_id")}), path)
    with pytest.raises(
        ValueError, match=r"captions\.parquet has no column 'text'; it has caption_id, image_id"
    ):
        read_table(path, CAPTIONS)
    pq.write_table(pa.table({**columns, "caption_id": pa.array(["0"])}), path)
    with pytest.raises(
        ValueError, match=r"captions\.parquet, column 'caption_id': type string, expected int64"
    ):
        read_table(path, CAPTIONS)
    pq.write_table(pa.table({**columns, "text": pa.array([None], pa.string())}), path)
    with pytest.raises(ValueError, match=r"captions\.parquet, column 'text': 1 nulls"):
        read_table(path, CAPTIONS)
    pq.write_table(pa.table(columns), path)
    assert read_table(path, CAPTIONS)["text"].tolist() == ["a dog"]
