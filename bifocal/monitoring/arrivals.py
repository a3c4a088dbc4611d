"""New images of a collection: the days on which they came, and their inspection."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.datasets import Dataset
from bifocal.datasets.base import UNCAPTIONED
from bifocal.datasets.inspection import Inspection, inspect_dataset
from bifocal.datasets.remote_files import is_address
from bifocal.datasets.tables import CAPTIONS, PHRASES
from bifocal.durable import replace_file
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import REJECTED as REJECTED_FILE

FIELDS = ("name", "sha256", "rejected")
SAME_SHARE = 0.05
"""Minimum share of the reference's images that its collection still has: another collection may
share a few, such as a placeholder."""


@dataclass(frozen=True)
class Arrivals:
    """Images that came to a collection in some days."""

    rows: list[int]  # rows of the items with a vector
    rejected: Mapping[str, str]  # reasons by the name of each image that was rejected


class Ledger:
    """Days on which the images of a collection were first seen: a table, whose ``file`` need not
    exist."""

    def __init__(self, file: Path) -> None:
        self.file = file
        columns = [*FIELDS, "day"]
        self.table = (
            pd.read_parquet(file) if file.is_file() else pd.DataFrame(columns=columns, dtype=str)
        )

    def start(self, collection: Collection) -> None:
        """Make all images of the collection old ones, which are not deleted."""
        self.table = _images(collection)[list(FIELDS)].assign(day="")

    def record(self, collection: Collection, day: date) -> None:
        """Add the images that are not in the ledger, with their day. An image with another content
        is a new one."""
        present = _images(collection)
        known = set(
            zip(self.table["name"], self.table["sha256"], self.table["rejected"], strict=True)
        )
        new = present[
            [row not in known for row in present[list(FIELDS)].itertuples(index=False, name=None)]
        ]
        added = new[list(FIELDS)].assign(day=day.isoformat())
        self.table = pd.concat([self.table, added], ignore_index=True) if len(self.table) else added

    def old(self, collection: Collection) -> Arrivals:
        """Return the images of the collection that were there at the start."""
        return _arrivals(
            _images(collection).merge(self.table[self.table["day"] == ""], on=list(FIELDS))
        )

    def check(self, collection: Collection) -> None:
        """Raise ``ValueError`` if the collection has less than ``SAME_SHARE`` of the reference's
        images."""
        start = int((self.table["day"] == "").sum())
        if len(self.old(collection).rows) < SAME_SHARE * start:
            raise ValueError(
                "the monitoring folder has the reference of another collection: name a folder of "
                "your own for this one, or write a new reference by 'python -m pipelines monitor "
                "--reference'"
            )

    def arrivals(self, collection: Collection, until: date, days: int) -> Arrivals:
        """Return the images of the collection that came in the ``days`` days up to ``until``."""
        since = (until - timedelta(days=days)).isoformat()
        recent = self.table[(self.table["day"] > since) & (self.table["day"] <= until.isoformat())]
        return _arrivals(_images(collection).merge(recent, on=list(FIELDS)))

    def write(self) -> None:
        """Write the table; a crash leaves the old one."""
        replace_file(self.file, lambda file: self.table.to_parquet(file, index=False))


def _arrivals(images: pd.DataFrame) -> Arrivals:
    broken = images[images["rejected"] == "yes"]
    rows = images.loc[images["rejected"] == "no", "row"].astype(int).tolist()
    return Arrivals(rows, dict(zip(broken["name"], broken["reason"], strict=True)))


def _images(collection: Collection) -> pd.DataFrame:
    """Return one row per item that is not deleted, and per rejected image."""
    items = collection.items.select(["item_id", "sha256"]).to_pandas()
    items = items.rename(columns={"item_id": "name"}).assign(
        rejected="no", reason="", row=np.arange(len(items))
    )
    rejected = pq.read_table(collection.directory / REJECTED_FILE).to_pandas()
    rejected = rejected.rename(columns={"image": "name"}).assign(sha256="", rejected="yes", row=-1)
    present: pd.DataFrame = pd.concat(
        [items[~collection.deleted], rejected.drop_duplicates("name")]
    )
    return present.reset_index(drop=True)


def inspect_arrivals(collection: Collection, arrivals: Arrivals) -> tuple[Inspection, Dataset]:
    """Inspect new images, see ``bifocal.datasets.inspection``; return the findings and the
    inspected dataset."""
    root = collection.description.root
    items = collection.items.take(
        pa.array(arrivals.rows, pa.int64())
    ).to_pandas()  # no rows would have no type
    local = [
        isinstance(path := collection.image(row), Path) and path.is_file() for row in arrivals.rows
    ]
    images = items.rename(columns={"item_id": "image_id", "image": "path"}).assign(
        split=UNCAPTIONED
    )
    images["path"] = images["path"].where(local, None)
    captions = items[["item_id", "captions"]].explode("captions").dropna()
    captions = captions.rename(columns={"item_id": "image_id", "captions": "text"}).reset_index(
        drop=True
    )
    captions.insert(0, "caption_id", np.arange(len(captions)))
    dataset = Dataset(
        images[["image_id", "path", "width", "height", "split", "sha256"]],
        captions[CAPTIONS.names],
        pd.DataFrame(columns=PHRASES.names),
        Path() if is_address(root) else (collection.directory / root).resolve(),
    )
    rejected = pd.DataFrame(list(arrivals.rejected.items()), columns=["entry", "reason"])
    return inspect_dataset(dataset, rejected.assign(kind="image", intentional=False), {}), dataset
