"""Loss of multi-level grounding: posteriors of matching images and sentences."""

from torch import Tensor, nn

from bifocal.losses.info_nce import info_nce
from bifocal.scores import Scores


class GroundingLoss(nn.Module):
    """Negative log posteriors of the matches, for the word-based and for the sentence-based scores.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, eq. (7)-(10).
    The model computes R_w of eq. (5), with its gamma_1, and R_s of eq. (6). A batch of the paper has one caption per
    image; here the other captions of an image match it too, so they do not compete with each other.

    Args:
        sharpness: gamma_2, per unit of score.

    Shape:
        scores.words (N, M), scores.sentences (N, M), matches (N, M) bool -> scalar, L of eq. (10) with the mean over
        the matches in place of the sum.

    Raises:
        ValueError: the shapes differ, or the model gives no word and sentence scores.

    Example:
        >>> import torch
        >>> scores = Scores(torch.zeros(2, 2), words=torch.zeros(2, 2), sentences=torch.zeros(2, 2))
        >>> round(GroundingLoss()(scores, torch.eye(2, dtype=torch.bool)).item(), 4)  # 4 log 2
        2.7726
    """

    def __init__(self, sharpness: float = 10.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        if scores.words is None or scores.sentences is None:
            raise ValueError("GroundingLoss needs scores.words and scores.sentences: train a GroundingModel with it")
        temperature = 1 / self.sharpness
        return info_nce(scores.words, matches, temperature) + info_nce(scores.sentences, matches, temperature)
