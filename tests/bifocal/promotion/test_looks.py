"""Looks at one test set spend one level; a renewed test set has its own."""

from hashlib import sha256

import pytest

from bifocal.promotion.looks import MIN_OVERLAP, Look, image_sketch, look_level, next_look, overlap


def contents(first: int, last: int) -> list[str]:
    return [sha256(str(number).encode()).hexdigest() for number in range(first, last)]


def test_the_levels_of_all_looks_add_up_to_the_rate() -> None:
    spent: list[float] = []
    while level := look_level(0.05, 52, spent):
        spent.append(level)
    assert len(spent) == 52
    assert sum(spent) == pytest.approx(0.05)


def test_a_smaller_plan_later_does_not_exceed_the_rate() -> None:
    assert look_level(0.05, 2, [0.05 / 52] * 20) == 0.025
    assert look_level(0.05, 2, [0.05 / 52] * 27) == 0.0


@pytest.mark.parametrize(("shared", "expected"), [(1000, 1.0), (500, 1 / 3), (0, 0.0)])
def test_overlap_of_sketches_estimates_that_of_the_sets(shared: int, expected: float) -> None:
    first, second = (
        image_sketch(contents(0, 1000)),
        image_sketch(contents(1000 - shared, 2000 - shared)),
    )
    assert overlap(first, second) == pytest.approx(expected, abs=0.13)
    assert overlap([], []) == 0.0


def test_a_test_set_grows_without_a_new_level_and_is_renewed_by_exchange() -> None:
    first = image_sketch(contents(0, 1000))
    assert overlap(first, image_sketch(contents(0, 1300))) > MIN_OVERLAP
    assert overlap(first, image_sketch(contents(800, 1800))) <= MIN_OVERLAP
    spent = [Look((str(number), "1"), 0.025, first) for number in range(2)]
    assert next_look(0.05, 2, ("3", "1"), first, spent).level == 0.0
    assert next_look(0.05, 2, ("1", "1"), first, spent) == spent[1]
    renewed = image_sketch(contents(800, 1800))
    assert next_look(0.05, 2, ("3", "1"), renewed, spent) == Look(("3", "1"), 0.025, renewed)
