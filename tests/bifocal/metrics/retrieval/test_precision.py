"""R-Precision and AP@R: loops over sorted lists and all orders of ties as references."""

from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics import chance_precision, precision_at_r, protocol_precision, split_folds
from bifocal.metrics.retrieval.precision import caption_precision
from bifocal.metrics.retrieval.protocols import Protocol


def in_order(correct: list[bool]) -> tuple[float, float]:
    """R-Precision and AP@R of candidates in their order."""
    number, hits, total = sum(correct), 0, 0.0
    for rank in range(number):
        if correct[rank]:
            hits += 1
            total += hits / (rank + 1)
    return hits / number, total / number


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5).filter(
        lambda c: any(r for _, r in c)
    )
)
def test_ties_count_as_mean_over_all_orders(candidates: list[tuple[int, bool]]) -> None:
    orders = [
        order for order in permutations(candidates) if all(a[0] >= b[0] for a, b in pairwise(order))
    ]
    values = [in_order([correct for _, correct in order]) for order in orders]
    expected = [sum(column) / len(values) for column in zip(*values, strict=True)]
    scores, correct = (torch.tensor([column]) for column in zip(*candidates, strict=True))
    assert precision_at_r(scores.double(), correct).tolist() == [pytest.approx(expected)]


def test_queries_with_different_numbers_of_answers_equal_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 40, generator=generator, dtype=torch.float64)
    correct = torch.rand(20, 40, generator=generator) < torch.linspace(0.05, 0.9, 20).unsqueeze(1)
    correct[:, 7] = True
    values = precision_at_r(scores, correct).tolist()
    for row, truth, value in zip(scores.tolist(), correct.tolist(), values, strict=True):
        order = sorted(range(40), key=lambda column, row=row: -row[column])
        assert value == pytest.approx(in_order([truth[column] for column in order]))


def test_folds_rank_only_their_own_captions() -> None:
    image_of_caption = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    scores = torch.randn(4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    folds = split_folds(Protocol(fold=2, folds=2), image_of_caption, 4)
    found = protocol_precision(folds, lambda rows, columns: scores[rows][:, columns])
    for image in range(4):
        columns = [0, 1, 4, 5] if image < 2 else [2, 3, 6, 7]
        order = sorted(columns, key=lambda column, image=image: -scores[image, column].item())
        expected = in_order([int(image_of_caption[column]) == image for column in order])
        assert found[image].tolist() == pytest.approx(expected)


def test_chance_is_the_precision_of_equal_scores() -> None:
    image_of_caption = torch.tensor([0, 0, 0, 1, 2, 2])
    chance = chance_precision(image_of_caption)
    equal = caption_precision(
        lambda rows, columns: torch.ones(len(rows), len(columns)), image_of_caption, 3
    )
    assert chance.tolist() == [pytest.approx(row) for row in equal.tolist()]
    # The share of correct captions.
    assert chance[:, 0].tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 3])


def test_query_without_answer_and_nan_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 queries have no correct candidate"):
        precision_at_r(torch.eye(2), torch.tensor([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="1 of 4 scores are NaN"):
        precision_at_r(torch.tensor([[0.0, float("nan")], [0.0, 0.0]]), torch.eye(2) > 0)
