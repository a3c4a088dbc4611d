"""Scores: the output of models, and the input of losses and metrics."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """Similarities of a batch or of a collection; a cosine spans [-1, 1].

    Attributes:
        cross: (N images, M captions).
        visual: (N, N) between images, for losses within a view; None if the model has none.
        textual: (M, M) between captions, for losses within a view; None if the model has none.
        word_scores: (N, M) of the captions' words: R_w of multi-level grounding, eq. (5); None for
            other models.
        sentence_scores: (N, M) of the captions as a whole: R_s of eq. (6d); None for other models.
    """

    cross: Tensor
    visual: Tensor | None = None
    textual: Tensor | None = None
    word_scores: Tensor | None = None
    sentence_scores: Tensor | None = None

    def float(self) -> "Scores":
        """Return the scores as float32, after a model in mixed precision."""
        others = (self.visual, self.textual, self.word_scores, self.sentence_scores)
        visual, textual, words, sentences = (
            None if part is None else part.float() for part in others
        )
        return Scores(self.cross.float(), visual, textual, words, sentences)


def mean_of_matches(costs: Tensor) -> Tensor:
    """Return the mean of the costs of all matches: 0, with a gradient of 0, for a batch without a
    match."""
    return costs.sum() / max(costs.numel(), 1)


def check_matches(scores: Tensor, matches: Tensor) -> None:
    """Raise ``ValueError`` unless ``matches`` has one value for every (image, caption) of
    ``scores`` (N, M)."""
    if scores.ndim != 2 or scores.shape != matches.shape:
        raise ValueError(
            f"scores {tuple(scores.shape)} and matches {tuple(matches.shape)} differ: "
            "both need one row per image and one column per caption"
        )


def is_diagonal(matches: Tensor, image: Tensor, caption: Tensor) -> bool:
    """Return whether each image matches only the caption with its own index, by the indices of all
    matches."""
    count = len(image)
    return count > 0 and matches.shape == (count, count) and torch.equal(image, caption)
