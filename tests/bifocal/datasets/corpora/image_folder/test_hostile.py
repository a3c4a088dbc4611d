"""A hostile folder: links that lead out of it, and tables that would fill the memory."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bifocal.datasets.formats.folder import list_folder
from bifocal.datasets.formats.sidecars import CAPTION, IMAGE, read_sidecars
from bifocal.datasets.formats.table_files import read_caption_table
from bifocal.search.collection.sources import files_source
from tests.bifocal.datasets.corpora.image_folder.writers import ROWS, picture, prepare


def test_links_out_of_the_folder_are_listed_and_not_read(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jpg").write_bytes(picture(50))
    (outside / "secret.txt").write_text("a password")
    (root / "linked.jpg").symlink_to(outside / "secret.jpg")
    (root / "0.txt").symlink_to(outside / "secret.txt")
    (root / "folder").symlink_to(outside)
    (root / "inside.jpg").symlink_to("1.jpg")
    named = ["linked.jpg,a", "folder/secret.jpg,b", "../outside/secret.jpg,c", "inside.jpg,d"]
    (root / "captions.csv").write_text(
        "\n".join(["image,caption", *map(",".join, ROWS), *named, ""])
    )
    dataset, rejected = prepare(root, tmp_path)
    assert "secret" not in "".join(dataset.images["path"])
    assert {"linked.jpg", "0.txt", "folder"} <= set(rejected["entry"])
    assert rejected["reason"].str.contains("names no image of the folder").sum() == 3
    (root / "captions.csv").unlink()
    (root / "0.json").write_text('{"caption": "from JSON"}')
    for number in range(1, 12):
        (root / f"{number}.txt").write_text(f"caption {number}")
    folder = list_folder(root)
    captions = {row[IMAGE]: row[CAPTION] for _, row in read_sidecars(folder)[0].rows}
    assert captions["0.jpg"] == "from JSON"
    source = files_source(root, tmp_path / "collection")
    assert [entry.entry for entry in folder.left_out] == ["0.txt", "folder", "linked.jpg"]
    assert not any(
        "linked" in str(entry.image) or "secret" in str(entry.image) for entry in source.entries
    )
    assert "linked.jpg" in {name for name, _ in source.rejected}


def test_tables_above_the_limits_are_not_read(tmp_path: Path) -> None:
    rows = pa.table(
        {"image": pa.DictionaryArray.from_arrays(np.zeros(6_000_000, np.int8), ["0.jpg"])}
    )
    pq.write_table(rows, tmp_path / "captions.parquet")
    with pytest.raises(
        ValueError, match=r"6,000,000 rows, more than 2,048 MiB or 5,000,000 rows: split it"
    ):
        read_caption_table(tmp_path, "captions.parquet")
    with (tmp_path / "captions.csv").open("wb") as file:
        file.truncate(3 * 2**30)  # sparse
    with pytest.raises(ValueError, match="3,072 MiB and 0 rows, more than 2,048 MiB"):
        read_caption_table(tmp_path, "captions.csv")


def test_wide_tables_and_values_that_repeat_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.datasets.formats.table_files.MAX_DECODED", 2**27)
    path = tmp_path / "captions.csv"
    path.write_text(",".join(f"column {number}" for number in range(100_000)) + "\n")
    with pytest.raises(
        ValueError, match=r"captions.csv has 100,000 columns, at most 1,000 are read"
    ):
        read_caption_table(tmp_path, path.name)
    lines = [
        json.dumps({"image": "0.jpg"} | {f"{row} {number}": 1 for number in range(400)})
        for row in range(9)
    ]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    table = read_caption_table(tmp_path, "captions.jsonl")
    assert (len(table.rows), len(table.columns), len(table.rejected)) == (2, 801, 7)
    dictionary = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, np.int8), ["x" * 400])
    lists = pa.ListArray.from_arrays([0, 1_000_000], dictionary)
    nulls = pa.ListArray.from_arrays([0, 17_000_000], pa.nulls(17_000_000))
    for column in (dictionary, lists, nulls):
        pq.write_table(pa.table({"caption": column}), tmp_path / "captions.parquet")
        with pytest.raises(
            ValueError, match=r"captions.parquet has values of more than 128 MiB: split it"
        ):
            read_caption_table(tmp_path, "captions.parquet")
