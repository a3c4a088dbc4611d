"""Albums and days as the blocks of a test: which they are, and that stationary albums give no
alarm."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bifocal.monitoring import discrepancy_test
from bifocal.monitoring.albums import averaging, image_blocks, image_groups
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item

NOON, LATER, NEXT_DAY = datetime(2026, 5, 1, 12), datetime(2026, 5, 1, 13), datetime(2026, 5, 2)


def collect(folder: Path, vectors: Mapping[str, list[float]], **metadata: list[Any]) -> Collection:
    writer = CollectionWriter(
        folder, Description(ModelIdentity("model", None, "0" * 64), str(folder), 2, None)
    )
    for number, (item_id, vector) in enumerate(vectors.items()):
        writer.add(Item(item_id, item_id, f"{number:064d}", 128, 128), np.array(vector))
    columns = {f"meta.{name}": values for name, values in metadata.items()}
    writer.finish({}, pa.table({"item_id": list(vectors), **columns}) if metadata else None)
    return Collection.open(folder)


def test_groups_are_days_and_albums(tmp_path: Path) -> None:
    vectors = {
        "a/1": [1.0, 0.0],
        "a/2": [1.0, 0.1],
        "a/3": [0.0, 1.0],
        "a/4": [0.1, 1.0],
        "b/1": [0.1, 1.0],
    }
    dates = [NOON, LATER, LATER, NEXT_DAY, NEXT_DAY]
    collection = collect(tmp_path / "dated", vectors, date=dates)
    assert image_groups(collection, range(5)).T.tolist() == [[0, 0, 0, 1, 2], [0, 0, 0, 0, 1]]
    named = collect(tmp_path / "named", vectors, album=["x", "y", "x", "y", "y"])
    assert image_groups(named, [0, 2, 4]).T.tolist() == [[0, 0, 1], [0, 0, 1]]
    assert image_groups(collection, []).shape == (0, 2)


def albums(
    random: np.random.Generator, count: int, size: int, cosine: float = 0.52, shift: float = 0.0
) -> np.ndarray:
    shared = np.repeat(random.normal(shift, size=(count, 8)), size, axis=0)
    vectors: np.ndarray = np.sqrt(cosine) * shared + np.sqrt(1 - cosine) * random.normal(
        shift, size=(count * size, 8)
    )
    return vectors


def levels(count: int, size: int) -> np.ndarray:
    labels = np.repeat(np.arange(count), size)
    return np.stack([labels, labels // 4], axis=1)


def test_blocks_are_the_groups_whose_parts_are_alike() -> None:
    random = np.random.default_rng(0)
    groups = (levels(40, 5), levels(20, 5))
    for cosine, expected in ((0.52, 20), (0.0, 100)):
        samples = (albums(random, 40, 5, cosine), albums(random, 20, 5, cosine))
        assert len(np.unique(image_blocks(samples, groups)[1])) == expected
    same = np.zeros((100, 2), np.int64)  # one folder for all images says nothing
    before, after = image_blocks((albums(random, 20, 5), albums(random, 10, 5)), (same, None))
    assert (len(np.unique(before)), len(np.unique(after))) == (100, 50)


def test_stationary_albums_give_no_alarm_and_a_shift_does() -> None:
    random = np.random.default_rng(1)
    labels = np.repeat(np.arange(40), 5), np.repeat(np.arange(20), 5)
    alarms = {"albums": 0, "images": 0, "shifted": 0}
    for seed in range(40):
        before, after = albums(random, 40, 5), albums(random, 20, 5)
        alarms["albums"] += discrepancy_test(before, after, 399, seed, labels).p_value <= 0.05
        alarms["images"] += discrepancy_test(before, after, 399, seed).p_value <= 0.05
        if seed < 10:
            shifted = albums(random, 20, 5, shift=0.4)
            alarms["shifted"] += (
                discrepancy_test(before, shifted, 399, seed, labels).p_value <= 0.05
            )
    assert alarms["albums"] <= 7  # with the rate 0.05, eight or more of 40 have probability 0.001
    assert alarms["images"] >= 20
    assert alarms["shifted"] == 10


def test_one_block_cannot_be_tested() -> None:
    with pytest.raises(ValueError, match="one block only"):
        discrepancy_test(np.eye(3), np.eye(3), blocks=(np.arange(3), np.zeros(3, np.int64)))


def test_members_are_averaged_up_to_the_largest_number() -> None:
    member = np.array([0, 1, 0, 1, 1])
    np.testing.assert_allclose(
        averaging(member).toarray(), [[0.5, 0, 0.5, 0, 0], [0, 1 / 3, 0, 1 / 3, 1 / 3]]
    )
    rows = averaging(member, 1).toarray()
    assert np.array_equal(rows.sum(axis=1), [1, 1])
    assert ((rows > 0).sum(axis=1) == 1).all()
