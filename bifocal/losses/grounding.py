"""Loss of multi-level grounding: posteriors of matching images and sentences."""

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor, nn

from bifocal.losses.info_nce import info_nce
from bifocal.scores import Scores


class GroundingLoss(nn.Module):
    """Negative log posteriors of the matches, for the word-based and for the sentence-based scores.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR
    2019, eq. (7)-(10). The model computes R_w of eq. (5), with its gamma_1, and R_s of eq. (6). A
    batch of the paper has one caption per image; here the other captions of an image match it too,
    so they do not compete with each other.

    Args:
        sharpness: gamma_2, per unit of score.

    Shape:
        word_scores, sentence_scores of scores (N, M), matches (N, M) bool -> scalar, L of eq. (10)
        with the mean over the matches in place of the sum.

    Raises:
        ValueError: the shapes differ, or the model gives no word and sentence scores.

    Example:
        >>> import torch
        >>> scores = Scores(
        ...     torch.zeros(2, 2), word_scores=torch.zeros(2, 2), sentence_scores=torch.zeros(2, 2)
        ... )
        >>> round(GroundingLoss()(scores, torch.eye(2, dtype=torch.bool)).item(), 4)  # 4 log 2
        2.7726
    """

    def __init__(self, sharpness: float = 10.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    @classmethod
    def needed_scores(cls, arguments: Mapping[str, Any]) -> tuple[Collection[str], str]:
        """Return the scores that it reads besides ``cross``, and the fix for a model without
        them."""
        return ("word_scores", "sentence_scores"), "set model to GroundingModel"

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        if scores.word_scores is None or scores.sentence_scores is None:
            raise ValueError(
                "GroundingLoss needs scores.word_scores and scores.sentence_scores: train a "
                "GroundingModel with it"
            )
        word_loss = info_nce(scores.word_scores, matches, 1 / self.sharpness)
        return word_loss + info_nce(scores.sentence_scores, matches, 1 / self.sharpness)
