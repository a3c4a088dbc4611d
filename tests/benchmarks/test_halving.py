"""Successive halving with equal budgets: which trials stop, and which steps a round has."""

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.halving import Budget, Halving, IsHopeless, expected_rounds, in_rounds, last_is_best

BUDGET = Budget(steps=90, rounds=9, reduction=3)


def trained(curve: Sequence[float], asked: IsHopeless) -> list[float]:
    measures: list[float] = []
    for measure in curve:
        measures.append(measure)
        if asked(measure):
            break
    return measures


@given(st.lists(st.lists(st.floats(0, 600), min_size=9, max_size=9), min_size=1, max_size=12))
def test_a_trial_goes_on_if_it_is_among_the_best_third_so_far(curves: list[list[float]]) -> None:
    """By loops over the definition of asynchronous successive halving."""
    search = Halving(BUDGET)
    at_rung: dict[int, list[float]] = {1: [], 3: []}
    for curve in curves:
        expected = 9
        for rung, values in at_rung.items():
            values.append(curve[rung - 1])
            place = max(len(values) // 3, 1)
            if curve[rung - 1] < sorted(values, reverse=True)[place - 1]:
                expected = rung
                break
        assert len(search.run(partial(trained, curve))) == expected


def test_the_first_trial_is_trained_whole_and_stored_measures_give_the_same_search() -> None:
    curves = torch.rand(16, 9, generator=torch.Generator().manual_seed(0)).tolist()
    first, again = (
        [search.run(partial(trained, curve)) for curve in curves]
        for search in (Halving(BUDGET), Halving(BUDGET))
    )
    assert len(first[0]) == 9
    assert first == again
    assert {len(curve) for curve in first} == {1, 3, 9}
    resumed = Halving(BUDGET)
    assert [resumed.run(partial(trained, curve)) for curve in first] == first


def test_rounds_have_equal_steps_across_epochs_of_any_length() -> None:
    epochs: list[int] = []

    def sampler(epoch: int) -> list[torch.Tensor]:
        epochs.append(epoch)
        return [torch.tensor([10 * epoch + step]) for step in range(3)]

    rounds = in_rounds(sampler, 4)
    found = [[int(rows) for rows in rounds(number)] for number in range(3)]
    assert found == [[0, 1, 2, 10], [11, 12, 20, 21], [22, 30, 31, 32]]
    assert epochs == [0, 1, 2, 3]


def test_budget_and_its_expectation() -> None:
    assert BUDGET.steps_per_round == 10
    with pytest.raises(ValueError, match="91 steps are not a multiple of 9 rounds"):
        Budget(91, 9, 3)
    assert expected_rounds(1, BUDGET) == 9
    assert 16 + 2 * 5 + 6 <= expected_rounds(16, BUDGET) <= 16 * 9 / 2


def test_the_best_round_can_be_the_last() -> None:
    assert last_is_best([1.0, 2.0, 3.0])
    assert not last_is_best([1.0, 3.0, 2.0])
    assert not last_is_best([1.0, 3.0, 3.0])
    assert not last_is_best([1.0])
