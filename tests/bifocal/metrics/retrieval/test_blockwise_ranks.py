"""Ranks from blocks of scores: invariance and invalid input."""

import pytest
import torch
from torch import Tensor

from bifocal.metrics import ranks, score_ranks
from tests.bifocal.metrics.retrieval.worked import IMAGE_OF_CAPTION, SCORES, blocks


@pytest.mark.parametrize("constant", [-3.0, 0.0, 7.0])
def test_ranks_are_invariant_to_added_constant(constant: float) -> None:
    shifted = (8 * SCORES).round().double() + constant
    ranked = score_ranks(blocks(shifted), IMAGE_OF_CAPTION, images=5)
    matches = torch.arange(5).unsqueeze(1) == IMAGE_OF_CAPTION
    for direction, scores, correct in zip(
        ranked, (shifted, shifted.T), (matches, matches.T), strict=True
    ):
        expected = ranks(scores - constant, correct)
        assert torch.equal(direction.expected(), expected.expected())
        assert torch.equal(direction.hits(2), expected.hits(2))


@pytest.mark.parametrize(
    ("image_of_caption", "expected"),
    [
        (torch.tensor([0, 0, 2]), "1 of 3 images have no caption"),
        (torch.tensor([0, 1, 3]), "from 0 to 3, expected rows of 3 images"),
        (torch.tensor([], dtype=torch.int64), "3 of 3 images have no caption"),
    ],
)
def test_score_ranks_rejects_images_without_captions(
    image_of_caption: Tensor, expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        score_ranks(blocks(SCORES), image_of_caption, images=3)


def test_score_ranks_rejects_nan_and_ranks_infinite_scores() -> None:
    broken = SCORES.clone()
    broken[3, 1] = torch.nan
    with pytest.raises(ValueError, match="1 of 50 scores of a block are NaN"):
        score_ranks(blocks(broken), IMAGE_OF_CAPTION, images=5)
    broken[3, 1], broken[0, 0] = -torch.inf, torch.inf
    assert score_ranks(blocks(broken), IMAGE_OF_CAPTION, images=5)[0].better[0] == 0
