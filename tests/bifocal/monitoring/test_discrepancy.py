"""The maximum mean discrepancy against loops over Python floats, and its test against all
permutations."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bifocal.monitoring.discrepancy import discrepancy_test, gaussian_kernel, unusual
from tests.margins import margin


def eq_3(x: list[list[float]], y: list[list[float]]) -> float:
    """Gretton et al. 2012, eq. (3), with the median heuristic."""
    both = x + y
    distances = sorted(math.dist(both[i], both[j]) for i in range(len(both)) for j in range(i))
    middle = len(distances) // 2
    squares = [distance**2 for distance in distances]
    width = squares[middle] if len(squares) % 2 else (squares[middle - 1] + squares[middle]) / 2

    def k(a: list[float], b: list[float]) -> float:
        return math.exp(-(math.dist(a, b) ** 2) / (2 * width))

    m, n = len(x), len(y)
    within_x = sum(k(x[i], x[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    within_y = sum(k(y[i], y[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    between = sum(k(x[i], y[j]) for i in range(m) for j in range(n)) / (m * n)
    return within_x + within_y - 2 * between


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1), m=st.integers(2, 7), n=st.integers(2, 7), shift=st.floats(-2, 2)
)
def test_estimate_is_eq_3(seed: int, m: int, n: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(m, 3)), random.normal(shift, size=(n, 3))
    assert discrepancy_test(x, y, 1).squared == pytest.approx(
        eq_3(x.tolist(), y.tolist()), abs=1e-12
    )
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    assert discrepancy_test(x @ turn + 1, y @ turn + 1, 1).squared == pytest.approx(
        eq_3(y.tolist(), x.tolist())
    )


@pytest.mark.parametrize("shift", [0.0, 1.3])
def test_p_value_is_that_of_all_divisions(shift: float) -> None:
    random = np.random.default_rng(3)
    x, y = random.normal(size=(5, 2)), random.normal(shift, size=(5, 2))
    both = np.concatenate([x, y]).tolist()
    observed = eq_3(both[:5], both[5:])
    divisions = [
        eq_3([both[i] for i in range(10) if i not in chosen], [both[i] for i in chosen])
        for chosen in combinations(range(10), 5)
    ]
    exact = sum(value >= observed - 1e-12 for value in divisions) / len(divisions)
    if exact <= 0.1:
        assert (
            discrepancy_test(x, y, 4000).p_value == exact
        )  # fewer divisions than permutations: the test takes all
    estimated = [discrepancy_test(x, y, 200, seed).p_value for seed in range(8)]
    assert np.mean(estimated) == pytest.approx((200 * exact + 1) / 201, rel=0.4)


def test_p_values_of_equal_distributions_are_uniform() -> None:
    random = np.random.default_rng(0)
    p_values = [
        discrepancy_test(
            random.normal(size=(20, 2)), random.normal(size=(12, 2)), 399, seed
        ).p_value
        for seed in range(300)
    ]
    for level in (0.05, 0.2, 0.5):
        count = sum(p_value <= level for p_value in p_values)
        assert count / 300 <= level + margin(300, level)
    assert np.mean(np.array(p_values) <= 0.5) > 0.5 - margin(300)


def test_equal_vectors_have_no_discrepancy() -> None:
    result = discrepancy_test(np.ones((4, 2)), np.ones((3, 2)), 99)
    assert (result.squared, result.p_value) == (pytest.approx(0), 1.0)
    assert gaussian_kernel(np.array([[0.0], [0.0], [0.0], [5.0]])).min() > 0


def test_new_part_of_the_space_is_unusual() -> None:
    random = np.random.default_rng(0)
    reference, week = random.normal(size=(60, 2)), random.normal(size=(40, 2))
    week[:10] = random.normal(6, 0.3, size=(10, 2))
    assert set(np.argsort(-unusual(reference, week))[:10].tolist()) == set(range(10))


@pytest.mark.parametrize("shapes", [((1, 2), (5, 2)), ((5, 2), (5, 3))])
def test_samples_that_cannot_be_compared_are_errors(
    shapes: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    with pytest.raises(ValueError, match="needs two vectors of one dimension"):
        discrepancy_test(np.zeros(shapes[0]), np.zeros(shapes[1]))
