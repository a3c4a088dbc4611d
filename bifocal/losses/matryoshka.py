"""Sum of a loss over vectors and their first dimensions."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from bifocal.losses.info_nce import InfoNCELoss
from bifocal.scores import Scores


class MatryoshkaLoss(nn.Module):
    """Mean of a loss over the whole vectors and the vectors cut to their first dimensions.

    Kusupati et al., "Matryoshka representation learning", NeurIPS 2022, eq. (1), with all weights
    1. The dimensions are ``cut_dims`` of the model. One training then serves several sizes of
    vectors.

    Args:
        loss: module ``loss(scores, matches) -> scalar``; by name, a part of ``bifocal.losses``.
            None for InfoNCE.

    Shape:
        the shapes of ``loss``, with ``scores.cut`` -> scalar.

    Raises:
        ValueError: the scores have no cut vectors.

    Example:
        >>> import torch
        >>> scores, matches = (
        ...     Scores(torch.eye(2), cut=(Scores(torch.zeros(2, 2)),)),
        ...     torch.eye(2, dtype=torch.bool),
        ... )
        >>> loss = MatryoshkaLoss(InfoNCELoss(temperature=1.0))
        >>> round(loss(scores, matches).item(), 4)  # (2 log(1 + 1 / e) + 2 log 2) / 2
        1.0064
    """

    parts: ClassVar[Mapping[str, str]] = {"loss": "bifocal.losses"}

    def __init__(self, loss: nn.Module | None = None) -> None:
        super().__init__()
        self.loss = loss or InfoNCELoss()

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        if not scores.cut:
            raise ValueError(
                "MatryoshkaLoss needs scores of cut vectors: give the model cut_dims, such as "
                "[64, 128, 256]"
            )
        terms = [self.loss(each, matches) for each in (scores, *scores.cut)]
        total: Tensor = sum(terms[1:], start=terms[0])
        return total / len(terms)
