"""Splits drawn from the training items."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.splits import check_fractions, draw_splits


@given(
    count=st.integers(1, 60), seed=st.integers(0, 99), val=st.floats(0, 0.5), test=st.floats(0, 0.4)
)
def test_drawn_splits_have_their_fractions_and_ignore_the_order(count, seed, val, test):
    splits = {str(number): "train" for number in range(count)}
    subsets = {"train": "train2017", "val": val, "test": test}
    drawn = draw_splits(splits, subsets, seed)
    counts = Counter(drawn.values())
    assert (counts["val"], counts["test"]) == (
        round(val * count),
        min(round(test * count), count - counts["val"]),
    )
    assert draw_splits(dict(reversed(splits.items())), subsets, seed) == drawn


def test_published_splits_are_kept():
    splits = {"a": "train", "b": "val", "c": "test"}
    assert draw_splits(splits, {"train": "x", "val": "y", "test": "z"}, seed=0) == splits
    assert draw_splits(splits, {"train": "x", "val": "y", "test": 0.9}, seed=0)["b"] == "val"


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0.0), (0.5, 0.5), ("val2017", 1.0)])
def test_fractions_that_leave_no_training_items_are_rejected(val, test):
    with pytest.raises(ValueError, match=r"Custom: val is .* must sum to less than 1"):
        check_fractions("Custom", val, test, "a list", "images")
