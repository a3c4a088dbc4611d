"""Hard-negative boxes against a loop over section 3.3."""

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.training.mining import hard_negative_boxes


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    phrases, boxes = normalize(torch.randn(6, 4), dim=1), normalize(torch.randn(90, 4), dim=1)
    positive = torch.zeros(6, 90, dtype=torch.bool)
    positive[torch.arange(6), torch.arange(6)] = True
    positive[0, 7] = True
    return phrases, boxes, positive


def closer(phrases: torch.Tensor, boxes: torch.Tensor, positive: torch.Tensor, phrase: int) -> list[int]:
    """Boxes closer to the phrase than the farthest of its positive boxes, by Euclidean distance."""
    distance = (boxes - phrases[phrase]).norm(dim=1)
    farthest = float(distance[positive[phrase]].max())
    return [box for box in range(90) if not positive[phrase, box] and float(distance[box]) < farthest]


def test_hard_negative_boxes_score_above_a_positive_box() -> None:
    phrases, boxes, positive = example()
    negatives = hard_negative_boxes(phrases, boxes, positive, torch.Generator().manual_seed(0), max_negatives=90)
    assert [rows.tolist() for rows in negatives] == [closer(phrases, boxes, positive, phrase) for phrase in range(6)]


def test_hard_negative_boxes_draw_at_most_max_negatives() -> None:
    phrases, boxes, positive = example()
    negatives = hard_negative_boxes(phrases, boxes, positive, torch.Generator().manual_seed(0), max_negatives=5)
    for phrase, rows in enumerate(negatives):
        hard = closer(phrases, boxes, positive, phrase)
        assert len(rows) == min(5, len(hard))
        assert set(rows.tolist()) <= set(hard)


def test_hard_negative_boxes_need_a_positive_box_per_phrase() -> None:
    phrases, boxes, positive = example()
    positive[3] = False
    with pytest.raises(ValueError, match="1 of 6 phrases have no positive box"):
        hard_negative_boxes(phrases, boxes, positive, torch.Generator())
