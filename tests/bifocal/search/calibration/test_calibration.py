"""Calibration of scores where few or no held-out captions find their own item."""

import numpy as np
import pytest

from bifocal.search import SearchIndex
from bifocal.search.calibration.fitting import TooFewPairs, calibrate

ITEMS, DIM = 40, 16


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("found", [0, 1])
def test_too_few_captions_that_find_their_own_item_are_an_error(found: int) -> None:
    random = np.random.default_rng(0)
    items = unit(random.normal(size=(ITEMS, DIM)))
    index = SearchIndex.of([str(number) for number in range(ITEMS)], items)
    queries = items[
        np.roll(np.arange(ITEMS), 1)
    ]  # each caption finds the item before its own first
    queries[:found] = items[:found]
    with pytest.raises(
        TooFewPairs,
        match=f"^{found} of {ITEMS} held-out captions find an item first that they describe",
    ):
        calibrate(index, queries, index.ids)
    calibration = calibrate(index, unit(items + 0.1 * random.normal(size=items.shape)), index.ids)
    assert calibration.queries == ITEMS
