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
    """

    cross: Tensor
    visual: Tensor | None = None
    textual: Tensor | None = None

    def float(self) -> "Scores":
        """The same scores as float32, after a model in mixed precision."""
        within = (None if part is None else part.float() for part in (self.visual, self.textual))
        return Scores(self.cross.float(), *within)


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
