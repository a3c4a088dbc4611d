"""Splits and samples that are drawn from a collection, and stay."""

from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.base import ImageEntry
from bifocal.datasets.corpora import Subset
from bifocal.datasets.splits import (
    LEAST,
    check_fractions,
    draw_counts,
    draw_groups,
    draw_splits,
)
from bifocal.draws import drawn_rows, positions
from bifocal.search.index.build import HeldOutCaptions

NAMES = st.sets(st.text(max_size=3), max_size=150)
SEEDS = st.integers(0, 99)
FRACTIONS = st.fixed_dictionaries({"val": st.floats(0, 0.5), "test": st.floats(0, 0.4)})


def own_groups(names):
    return {name: name for name in names}


@given(kept=NAMES, others=NAMES, seed=SEEDS, fractions=FRACTIONS)
def test_other_items_move_none_but_the_least_number(kept, others, seed, fractions):
    small, large = (
        draw_groups(own_groups(names), fractions, seed) for names in (kept, kept | others)
    )
    moved = sum(small[name] != large[name] for name in kept)
    assert moved <= LEAST * len(fractions)


@given(others=NAMES, seed=SEEDS)
def test_other_items_move_none_of_a_collection_with_enough(others, seed):
    kept = {f"{number}.jpg" for number in range(400)}
    fractions = {"val": 0.15, "test": 0.15}
    small, large = (
        draw_groups(own_groups(names), fractions, seed) for names in (kept, kept | others)
    )
    assert [small[name] for name in kept] == [large[name] for name in kept]


@given(count=st.integers(0, 200), seed=SEEDS, fractions=FRACTIONS)
def test_splits_have_the_least_number_and_about_their_shares(count, seed, fractions):
    names = [str(number) for number in range(count)]
    drawn = draw_groups(own_groups(names), fractions, seed)
    assert drawn == draw_groups(own_groups(reversed(names)), fractions, seed)
    counts = Counter(drawn.values())
    assert not count or counts["train"]
    least = {name: min(round(part * count), LEAST) for name, part in fractions.items()}
    if sum(least.values()) < count:
        assert all(counts[name] >= number for name, number in least.items())
    for name, part in fractions.items():  # five standard deviations
        assert counts[name] <= part * count + 5 * (part * count) ** 0.5 + LEAST


@given(kept=NAMES, other=st.text(max_size=3), seed=SEEDS, count=st.integers(0, 20))
def test_one_more_item_changes_one_of_a_drawn_number(kept, other, seed, count):
    counts = {"test": count, "val": count}
    if 2 * count > len(kept):
        with pytest.raises(ValueError, match="fewer than the splits need"):
            draw_counts(kept, counts, seed)
        return
    small, large = (draw_counts(names, counts, seed) for names in (kept, kept | {other}))
    assert sum(small.get(name) != large.get(name) for name in kept) <= len(counts)
    assert Counter(small.values()) == Counter({k: v for k, v in counts.items() if v})


@given(kept=NAMES, others=NAMES, seed=SEEDS, images=st.integers(1, 50))
def test_a_subset_keeps_most_of_its_images(kept, others, seed, images):
    def drawn(names):
        return Subset(None, images, seed)._draw(
            [ImageEntry(name, name, "train") for name in sorted(names)]
        )

    gone = drawn(kept) - drawn(kept | others)
    assert len(gone) <= len(others - kept)


@given(names=st.lists(st.text(), unique=True, max_size=30), key=SEEDS, count=st.integers(0, 40))
def test_a_sample_does_not_depend_on_the_order(names, key, count):
    chosen = {names[row] for row in drawn_rows(names, count, key)}
    turned = names[::-1]
    assert len(chosen) == min(count, len(names))
    ties = len(set(positions(names, key).tolist())) < len(names)  # composed and decomposed accents
    assert ties or chosen == {turned[row] for row in drawn_rows(turned, count, key)}


@given(kept=NAMES, others=NAMES, key=SEEDS, count=st.integers(0, 40))
def test_a_sample_changes_by_at_most_the_changed_items(kept, others, key, count):
    """What is drawn by ``drawn_rows``: also the bank of hubness, and the samples of calibration,
    of evaluation and of the monitor."""

    def drawn(names):
        names = sorted(names)
        return {names[row] for row in drawn_rows(names, count, key)}

    fewer, more = drawn(kept), drawn(kept | others)
    assert len(fewer - more) <= len(others - kept)
    assert more & kept <= fewer


@given(kept=NAMES, others=NAMES, seed=SEEDS)
def test_held_out_captions_stay_in_the_sample_of_calibration(kept, others, seed):
    def sampled(texts):
        table = pd.DataFrame({"image_id": "a.jpg", "text": sorted(texts)})
        return {*HeldOutCaptions.sample(table, 20, 12, seed).texts}

    assert len(sampled(kept) - sampled(kept | others)) <= len(others - kept)


def test_positions_are_equal_on_all_machines_and_uniform():
    assert positions(["é.jpg"], 0) == positions(["e\u0301.jpg"], 0)
    assert positions(["a", "b"], 1).tolist() != positions(["a", "b"], 2).tolist()
    found = positions(range(4000), "key")
    assert 0 <= found.min() < 0.01 < 0.99 < found.max() < 1
    assert found.mean() == pytest.approx(0.5, abs=0.03)


def test_published_splits_are_kept():
    splits = {"a": "train", "b": "val", "c": "test"}
    assert draw_splits(splits, {"train": "x", "val": "y", "test": "z"}, seed=0) == splits
    assert draw_splits(splits, {"train": "x", "val": "y", "test": 0.9}, seed=0)["b"] == "val"


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0.0), (0.5, 0.5), ("val2017", 1.0)])
def test_fractions_that_leave_no_training_items_are_rejected(val, test):
    with pytest.raises(ValueError, match=r"Custom: val is .* must sum to less than 1"):
        check_fractions("Custom", val, test, "a list", "images")
