"""FiftyOne: its format CSVDataset with absolute paths or addresses of the images, and the vectors as an array."""

import csv
import json
from pathlib import Path

import numpy as np

from bifocal.search.collection.collection import Collection
from bifocal.search.exports.base import blocks

IMPORT = '''"""Import the dataset into FiftyOne, with the vectors as the field "embedding"."""

import json

import fiftyone
import numpy as np

fields = {{name: None for name in ("filepath", "item_id", "sha256")}}
fields |= {{"captions": json.loads, "meta": json.loads}}
dataset = fiftyone.Dataset.from_dir(
    dataset_dir=".", dataset_type=fiftyone.types.CSVDataset, labels_path="labels.csv", fields=fields, name="{name}"
)
vectors = dict(zip(json.load(open("ids.json")), np.load("vectors.npy").astype("float32")))
dataset.set_values("embedding", [vectors[item_id] for item_id in dataset.values("item_id")])
'''
COLUMNS = ("filepath", "item_id", "sha256", "captions", "meta")


def write(collection: Collection, directory: Path) -> None:
    """Write ``labels.csv``, ``vectors.npy``, ``ids.json`` and ``import.py``; items without an image are left out."""
    ids: list[str] = []
    parts = [np.zeros((0, collection.dimension), np.float16)]
    with (directory / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for rows, vectors in blocks(collection):
            shown = [number for number, row in enumerate(rows) if row["image"] is not None]
            for number in shown:
                row = rows[number]
                texts = [json.dumps(row[name], ensure_ascii=False, default=str) for name in ("captions", "meta")]
                table.writerow([row["image"], row["item_id"], row["sha256"], *texts])
            ids += [rows[number]["item_id"] for number in shown]
            parts.append(vectors[shown])
    np.save(directory / "vectors.npy", np.concatenate(parts))
    (directory / "ids.json").write_text(json.dumps(ids, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / "import.py").write_text(IMPORT.format(name=collection.model.name), encoding="utf-8")
