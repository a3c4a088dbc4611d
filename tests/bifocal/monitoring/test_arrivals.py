"""Which images of a collection are new, and their inspection."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bifocal.monitoring.arrivals import Ledger, inspect_arrivals
from bifocal.monitoring.monitor import LEDGER
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item

MONDAY, NEXT_MONDAY = date(2026, 11, 16), date(2026, 11, 23)


def write(
    folder: Path,
    contents: Mapping[str, str],
    sides: Mapping[str, int] | None = None,
    deleted: Sequence[str] = (),
) -> Collection:
    """Write a collection of items with their SHA-256, and one broken image."""
    description = Description(ModelIdentity("model", None, "0" * 64), str(folder), 2, None)
    writer = CollectionWriter(folder, description)
    for item_id, sha256 in contents.items():
        side = (sides or {}).get(item_id, 128)
        writer.add(Item(item_id, f"{item_id}.png", sha256, 200, side), np.array([1.0, 0.0]))
    writer.reject("broken.png", "cannot be decoded (truncated)")
    writer.finish({}, None, [Item(item_id, None, "x", 1, 1) for item_id in deleted])
    return Collection.open(folder)


def test_images_are_new_in_the_days_after_they_came(tmp_path: Path) -> None:
    before = write(tmp_path / "before", {"a": "1", "b": "2"})
    ledger = Ledger(tmp_path / "images.parquet")
    ledger.start(before)
    ledger.write()
    after = write(tmp_path / "after", {"a": "1", "b": "changed", "c": "3"}, deleted=["d"])
    ledger = Ledger(tmp_path / "images.parquet")
    ledger.record(after, MONDAY)
    ledger.record(after, NEXT_MONDAY)  # known since Monday
    for until, rows in ((MONDAY, [1, 2]), (date(2026, 11, 22), [1, 2]), (NEXT_MONDAY, [])):
        arrivals = ledger.arrivals(after, until, days=7)
        assert arrivals.rows == rows
        assert arrivals.rejected == {}  # it was broken before
    assert ledger.arrivals(after, date(2026, 11, 15), days=7).rows == []


def test_new_images_are_inspected(tmp_path: Path) -> None:
    collection = write(tmp_path / "collection", {"a": "1", "b": "2", "c": "3"}, sides={"b": 50})
    noise = Image.fromarray(
        np.random.default_rng(0).integers(0, 255, (128, 200, 3), dtype=np.uint8)
    )
    for item_id in "ab":  # the file of c is gone
        noise.save(tmp_path / "collection" / f"{item_id}.png")
    ledger = Ledger(tmp_path / "images.parquet")
    ledger.record(collection, MONDAY)
    inspection, dataset = inspect_arrivals(collection, ledger.arrivals(collection, MONDAY, days=1))
    titles = {finding.title: finding.count for finding in inspection.findings}
    assert titles == {
        "image: cannot be decoded": 1,
        "near-duplicates in one split": 1,
        "very small images": 1,
    }
    assert dataset.image_path("a").is_file()


@pytest.mark.parametrize(
    ("shared", "is_ours"),
    [(0, False), (1, False), (5, False), (6, True), (50, True)],  # of 101
)
def test_a_folder_with_the_reference_of_another_collection_is_refused(
    tmp_path: Path, shared: int, is_ours: bool
) -> None:
    ours = {f"a{number}": f"{number}" for number in range(100)}
    theirs = {f"b{number}": f"{number}" for number in range(99)}
    theirs |= {name: f"other {digest}" for name, digest in ours.items()}  # equal names
    theirs |= dict(list(ours.items())[:shared])
    ledger = Ledger(tmp_path / LEDGER)
    ledger.start(write(tmp_path / "ours", ours))
    other = write(tmp_path / "theirs", theirs)
    refusal = pytest.raises(ValueError, match="has the reference of another collection")
    with nullcontext() if is_ours else refusal:
        ledger.check(other)
