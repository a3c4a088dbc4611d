"""Which images of a collection are new, and their inspection."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image

from bifocal.monitoring.arrivals import Ledger, inspect_arrivals
from bifocal.monitoring.drift import Thresholds
from bifocal.monitoring.monitor import LEDGER, Artifacts, Monitor
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


def test_a_folder_with_the_reference_of_another_collection_is_refused(tmp_path: Path) -> None:
    policy = yaml.safe_load(Path("pipelines/policies/thresholds.yaml").read_text())
    ours = write(tmp_path / "ours", {f"a{number}": f"{number}" for number in range(3)})
    theirs = write(tmp_path / "theirs", {f"b{number}": f"b{number}" for number in range(300)})
    (tmp_path / "shared").mkdir()
    ledger = Ledger(tmp_path / "shared" / LEDGER)
    ledger.start(ours)
    ledger.write()
    artifacts = Artifacts(tmp_path, tmp_path / "theirs", tmp_path)
    monitor = Monitor(artifacts, tmp_path / "shared", Thresholds.of(policy))
    observer = SimpleNamespace(collection=theirs)
    with pytest.raises(ValueError, match="shared has the reference of another collection"):
        monitor._renewed_reference(None, observer, "model", MONDAY, 7)  # type: ignore[arg-type]
