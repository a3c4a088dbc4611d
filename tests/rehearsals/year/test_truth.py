"""The clients of the year find a returned deletion, a lost image, a wrong score and a wrong
order."""

import time

import numpy as np
import pytest

from tests.rehearsals.year.fleet import LAG, K, Truth

QUERY = np.array([1.0, 0.0], np.float32)
NAMES = [f"item-{number}" for number in range(K + 2)]


@pytest.fixture
def truth() -> Truth:
    """Items whose scores fall, of which the last one is not everywhere yet."""
    angles = np.linspace(0, 1, len(NAMES))
    truth = Truth(
        {
            name: np.array([np.cos(a), np.sin(a)], np.float32)
            for name, a in zip(NAMES, angles, strict=True)
        }
    )
    truth.set_everywhere(NAMES[:-1])
    return truth


def answer(truth: Truth, names: list[str]) -> list[dict[str, object]]:
    return [{"id": name, "score": float(truth.vectors[name] @ QUERY)} for name in names]


def test_right_answers_have_no_fault(truth: Truth) -> None:
    now = time.monotonic()
    assert truth.fault(QUERY, answer(truth, NAMES[:K]), now) is None
    truth.deleted[NAMES[0]] = now
    for names in (NAMES[:K], NAMES[1 : K + 1]):  # until every replica has read the deletion
        assert truth.fault(QUERY, answer(truth, names), now + LAG / 2) is None
    assert truth.fault(QUERY, answer(truth, NAMES[1 : K + 1]), now + 2 * LAG) is None


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (NAMES[:K], f"the deleted item {NAMES[0]} returned"),
        ([*NAMES[1:K], NAMES[-1]], "a better item than"),
        (NAMES[1:K], "4 results"),
        (NAMES[K:0:-1], "in the wrong order"),
    ],
)
def test_wrong_answers_have_a_fault(truth: Truth, names: list[str], fault: str) -> None:
    truth.deleted[NAMES[0]] = time.monotonic()
    assert fault in str(truth.fault(QUERY, answer(truth, names), truth.deleted[NAMES[0]] + 2 * LAG))


def test_a_score_of_another_model_is_a_fault(truth: Truth) -> None:
    results = answer(truth, NAMES[:K])
    results[-1]["score"] = -1.0
    assert "has the score -1.0" in str(truth.fault(QUERY, results, time.monotonic()))
