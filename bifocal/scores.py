"""Scores: the one thing that models return, and that losses and metrics read."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """Similarities of a batch or of a collection; a cosine spans [-1, 1].

    Attributes:
        cross: (N images, M captions).
        visual: (N, N) between images, where a loss within the view needs it.
        textual: (M, M) between captions, likewise.
        words: (N, M) of the captions' words, where a model scores them apart: R_w of multi-level grounding, eq. (5).
        sentences: (N, M) of the captions as a whole, likewise: R_s of eq. (6d).
    """

    cross: Tensor
    visual: Tensor | None = None
    textual: Tensor | None = None
    words: Tensor | None = None
    sentences: Tensor | None = None

    def float(self) -> "Scores":
        """The same scores as float32, after a model in mixed precision."""
        others = (self.visual, self.textual, self.words, self.sentences)
        return Scores(self.cross.float(), *(None if part is None else part.float() for part in others))


def check_matches(scores: Tensor, matches: Tensor) -> None:
    """Raise ``ValueError`` unless ``matches`` says of every (image, caption) of ``scores`` whether they match.

    Shape:
        scores (N, M), matches (N, M) bool or graded relevance.
    """
    if scores.ndim != 2 or scores.shape != matches.shape:
        raise ValueError(
            f"scores {tuple(scores.shape)} and matches {tuple(matches.shape)} differ: "
            "both need one row per image and one column per caption"
        )
