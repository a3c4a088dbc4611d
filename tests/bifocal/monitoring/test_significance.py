"""Tests of shares and paired values against their definitions, in loops."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.monitoring.significance import Count, holm_levels, losses_prevail, mean_rises, share_rises


@given(m=st.integers(1, 12), n=st.integers(1, 12), data=st.data())
def test_share_rises_is_fishers_exact_test(m: int, n: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, m)), data.draw(st.integers(0, n))
    tables = {hits: comb(n, hits) * comb(m, a + b - hits) for hits in range(n + 1) if 0 <= a + b - hits <= m}
    expected = sum(count for hits, count in tables.items() if hits >= b) / sum(tables.values())
    assert share_rises(Count(a, m), Count(b, n)) == pytest.approx(expected)


@given(pairs=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_losses_prevail_is_the_exact_test_of_mcnemar(pairs: list[tuple[bool, bool]]) -> None:
    lost, gained = pairs.count((True, False)), pairs.count((False, True))
    expected = sum(comb(lost + gained, k) for k in range(lost, lost + gained + 1)) / 2 ** (lost + gained)
    before, after = np.array(pairs).T
    assert losses_prevail(before, after) == pytest.approx(expected)


def test_mean_rises_is_that_of_all_signs() -> None:
    differences = np.array([0.3, -0.1, 0.25, 0.05, 0.4, -0.2, 0.0, 0.15])
    signed = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in product((-1, 1), repeat=8)]
    expected = sum(value >= differences.sum() - 1e-12 for value in signed) / len(signed)
    assert mean_rises(np.zeros(8), differences, 20_000) == pytest.approx(expected, abs=0.01)
    assert mean_rises(differences, differences) == 1.0


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=8), level=st.floats(0.001, 0.2))
def test_holm_rejects_what_adjusted_p_values_reject(p_values: list[float], level: float) -> None:
    named = {str(number): p_value for number, p_value in enumerate(p_values)}
    levels = holm_levels(named, level)
    rejected = {name for name, p_value in named.items() if p_value <= levels[name]}
    # Holm 1979: go through the p-values in ascending order, and stop at the first one above its level.
    expected = set()
    for rank, name in enumerate(sorted(named, key=lambda name: named[name])):
        if named[name] > level / (len(named) - rank):
            break
        expected.add(name)
    assert rejected == expected


def test_entries_of_albums_count_as_few() -> None:
    single = share_rises(Count(2, 1500), Count(10, 500))
    assert single < 0.001
    # One album of ten was rejected: one entry of fifty.
    assert share_rises(Count(2, 1500), Count(10, 500, 10.0)) == share_rises(Count(0, 150), Count(1, 50))
