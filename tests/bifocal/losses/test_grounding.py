"""GroundingLoss against a loop over its equations."""

import pytest
import torch

from bifocal.losses import GroundingLoss
from bifocal.scores import Scores
from tests.bifocal.losses.pairs import negative_log_posteriors


@pytest.mark.parametrize("captions_per_image", [1, 2])
@pytest.mark.parametrize("images", [2, 17])
def test_grounding_is_eq_7_to_10(images: int, captions_per_image: int) -> None:
    torch.manual_seed(images)
    words, sentences = torch.rand(2, images, images * captions_per_image, dtype=torch.float64)
    matches = torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)
    loss = GroundingLoss(sharpness=7.0)(
        Scores(words, word_scores=words, sentence_scores=sentences), matches
    )
    expected = sum(
        negative_log_posteriors(part.tolist(), matches.tolist(), 7.0) for part in (words, sentences)
    )
    assert loss.item() == pytest.approx(expected)


def test_grounding_gradient() -> None:
    torch.manual_seed(2)
    words, sentences = torch.randn(2, 2, 4, dtype=torch.float64)
    matches = torch.eye(2, dtype=torch.bool).repeat_interleave(2, dim=1)
    assert torch.autograd.gradcheck(
        lambda w, s: GroundingLoss()(Scores(w, word_scores=w, sentence_scores=s), matches),
        (words.requires_grad_(), sentences.requires_grad_()),
    )


def test_grounding_rejects_scores_without_words() -> None:
    with pytest.raises(ValueError, match="train a GroundingModel with it"):
        GroundingLoss()(Scores(torch.eye(2)), torch.eye(2, dtype=torch.bool))
