"""Calibration without captions: names that images show are found, and names that none shows are
not."""

from pathlib import Path

import numpy as np
import pytest

from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.calibration import UNREACHABLE, Calibration
from bifocal.search.calibration.fitting import (
    FALSE_POSITIVES,
    MIN_ITEMS,
    calibrate_by_names,
    read_names,
)
from bifocal.search.index.exact import unit_vectors
from tests.margins import margin

NAMES, SHOWN, ITEMS, D = 120, 60, 300, 128


def drawn() -> tuple[SearchIndex, np.ndarray, np.ndarray]:
    """Return an index whose items show three of the first half of the names, all names, and their
    longer queries.

    A query with more other words is farther from its name and from every item.
    """
    names = unit_vectors(noise(NAMES, seed=0))
    shown = (np.arange(ITEMS)[:, None] + [0, 1, 2]) % SHOWN
    items = names[shown].sum(axis=1) + 0.3 * noise(ITEMS, seed=1)
    lengths = np.random.default_rng(2).uniform(0.2, 1.5, (NAMES, 1))
    return (
        SearchIndex.of([str(row) for row in range(ITEMS)], items),
        names,
        names + lengths * noise(NAMES, seed=3),
    )


def noise(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, D)) / np.sqrt(D)


def test_shown_names_are_found_and_others_are_not() -> None:
    index, names, queries = drawn()
    index.calibration = calibrate_by_names(index, names, queries)
    assert index.calibration is not None
    results = Search(index).batch(queries, 3, sentences=True)
    found = np.array([result.found for result in results])
    limit = FALSE_POSITIVES + margin(SHOWN, FALSE_POSITIVES)
    assert found[:SHOWN].mean() > found[SHOWN:].mean() + margin(SHOWN)
    assert max(found[SHOWN:].mean(), index.calibration.false_positive_rate) <= limit
    hits, calibration = results[0], index.calibration
    # The logit by the definition, with the best cosine of a name in place of the margin.
    reference = max(
        float(np.dot(unit_vectors(queries)[0], name))
        for name in names.astype(np.float16).astype(float)
    )
    logit = (
        calibration.intercept
        + calibration.score * hits[0].score
        + calibration.reference * reference
    )
    assert hits[0].probability == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)
    assert calibration.score > 0
    assert calibration.certain == UNREACHABLE
    assert {hit.relevance for result in results for hit in result} == {"perhaps", "nothing"}
    assert calibration.reference != 0 == calibration.margin


def test_the_calibration_is_kept_with_its_names(tmp_path: Path) -> None:
    index, names, queries = drawn()
    index = index.without_items(["0", "1"])
    index.calibration = calibrate_by_names(index, names, queries)
    index.write(tmp_path)
    opened = SearchIndex.open(tmp_path)
    assert opened.calibration == index.calibration == Calibration.read(tmp_path)
    expected = Search(index).batch(queries[:9], 4, sentences=True)
    assert Search(opened).batch(queries[:9], 4, sentences=True) == expected


def test_few_items_are_not_calibrated() -> None:
    index, names, queries = drawn()
    few = index.without_items(index.ids[MIN_ITEMS - 1 :])
    assert calibrate_by_names(few, names, queries) is None


def test_names_are_words() -> None:
    names = read_names()
    assert len(names) == 1000
    assert {"zebra", "pizza", "golden retriever"} <= set(names)
