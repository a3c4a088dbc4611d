"""Hard-negative boxes against a loop over section 3.3."""

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.training.batches.hard_boxes import hard_negative_boxes


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    phrases, boxes = normalize(torch.randn(6, 4), dim=1), normalize(torch.randn(90, 4), dim=1)
    truth = torch.zeros(6, 90, dtype=torch.bool)
    truth[torch.arange(6), torch.arange(6)] = True
    truth[0, 7] = True
    return phrases, boxes, truth


def closer(phrases: torch.Tensor, boxes: torch.Tensor, truth: torch.Tensor, phrase: int) -> list[int]:
    """Boxes that are closer to the phrase than the farthest of its own, by Euclidean distance."""
    distance = (boxes - phrases[phrase]).norm(dim=1)
    farthest = float(distance[truth[phrase]].max())
    return [box for box in range(90) if not truth[phrase, box] and float(distance[box]) < farthest]


def test_hard_negatives_are_closer_than_the_truth() -> None:
    phrases, boxes, truth = example()
    found = hard_negative_boxes(phrases, boxes, truth, torch.Generator().manual_seed(0), at_most=90)
    assert [rows.tolist() for rows in found] == [closer(phrases, boxes, truth, phrase) for phrase in range(6)]


def test_at_most_so_many_are_drawn() -> None:
    phrases, boxes, truth = example()
    found = hard_negative_boxes(phrases, boxes, truth, torch.Generator().manual_seed(0), at_most=5)
    for phrase, rows in enumerate(found):
        hard = closer(phrases, boxes, truth, phrase)
        assert len(rows) == min(5, len(hard))
        assert set(rows.tolist()) <= set(hard)


def test_a_phrase_needs_a_box() -> None:
    phrases, boxes, truth = example()
    truth[3] = False
    with pytest.raises(ValueError, match="1 of 6 phrases have no box of their own"):
        hard_negative_boxes(phrases, boxes, truth, torch.Generator())
