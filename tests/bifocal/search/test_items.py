"""Facts of items are values that JSON has."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from bifocal.search.collection.collection import Collection
from bifocal.search.items import Items
from bifocal.search.trained_model import COLLECTION, TrainedModel
from tests.bifocal.serving.runs import write_run


@pytest.mark.parametrize(
    ("value", "shown"), [(2.5, 2.5), (float("nan"), None), (float("inf"), None), (None, None)]
)
def test_numbers_that_json_lacks_are_none(
    value: float | None, shown: float | None, demo: TrainedModel, tmp_path: Path
) -> None:
    collection = Collection.open(write_run(demo, tmp_path / "run") / COLLECTION)
    column = pa.array([value] * len(collection), pa.float64())
    facts = Items(collection.items.append_column("meta.price", column)).facts(0)
    assert facts["metadata"]["price"] == shown
    assert json.dumps(facts, allow_nan=False)
