"""Ranking across the views, with neighborhoods preserved within each view."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches


class StructurePreservingLoss(nn.Module):
    """Bidirectional ranking constraints with structure-preserving constraints, on Euclidean
    distances.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, eq.
    (1)-(5). Two captions are neighbors if an image matches both; two images are neighbors if a
    caption matches both. The structure terms need neighbors in the batch: two captions of an image,
    or two images of a phrase. Only the ``max_violations`` largest costs of each positive pair
    count.

    As a regularizer beside another loss (``WeightedSumLoss``), set ``caption_weight`` and
    ``image_weight`` to 0: the structure terms remain.

    Args:
        margin: m, in units of the distance between unit vectors, which is in [0, 2].
        image_weight: lambda_1, of the constraints (2) on images, where captions are the queries.
        visual_weight: lambda_2, of the structure (3) of images.
        textual_weight: lambda_3, of the structure (4) of captions.
        max_violations: K, violations that count per positive pair and term.
        caption_weight: of the constraints (1) on captions, where images are the queries; 1 in eq.
            (5).

    Shape:
        scores.cross (N, M), scores.visual (N, N), scores.textual (M, M), cosines; matches (N, M)
        bool -> scalar, the sum of eq. (5) divided by the number of matches.

    Raises:
        ValueError: the shapes differ, or the scores of a term with a weight are missing.

    Example:
        >>> loss, matches = (
        ...     StructurePreservingLoss(textual_weight=0.0),
        ...     torch.eye(2, dtype=torch.bool),
        ... )
        >>> round(
        ...     loss(Scores(torch.eye(2)), matches).item(), 2
        ... )  # negatives are farther by sqrt(2) > margin
        0.0
    """

    def __init__(
        self,
        margin: float = 0.1,
        image_weight: float = 2.0,
        visual_weight: float = 0.0,
        textual_weight: float = 0.2,
        max_violations: int = 50,
        caption_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.margin, self.max_violations = margin, max_violations
        self.caption_weight = caption_weight
        self.image_weight, self.visual_weight, self.textual_weight = (
            image_weight,
            visual_weight,
            textual_weight,
        )

    @classmethod
    def needed_scores(cls, arguments: Mapping[str, Any]) -> tuple[Collection[str], str]:
        """Return the scores that it reads besides ``cross``, and the fix for a model without
        them."""
        views = [view for view in ("visual", "textual") if arguments[f"{view}_weight"]]
        return views, "set visual_weight and textual_weight to 0, or use TwoBranchModel"

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        total = scores.cross.new_zeros(())
        if self.caption_weight:
            total = total + self.caption_weight * self._violations(scores.cross, matches, matches)
        if self.image_weight:
            total = total + self.image_weight * self._violations(
                scores.cross.T, matches.T, matches.T
            )
        if self.visual_weight:
            total = total + self.visual_weight * self._within(scores.visual, matches, "visual")
        if self.textual_weight:
            total = total + self.textual_weight * self._within(scores.textual, matches.T, "textual")
        return total / matches.sum().clamp(min=1)

    def _within(self, scores: Tensor | None, matches: Tensor, view: str) -> Tensor:
        if scores is None:
            raise ValueError(
                f"StructurePreservingLoss needs scores.{view}, which the model lacks: set "
                f"{view}_weight to 0"
            )
        shared = matches.to(scores.dtype)
        neighbors = shared @ shared.T > 0
        # An element is at distance 0 from itself: exclude it from positives and from negatives.
        itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        return self._violations(scores, neighbors & ~itself, neighbors | itself)

    def _violations(self, scores: Tensor, positive: Tensor, related: Tensor) -> Tensor:
        """Sum the largest costs of each positive pair; all elements but the ``related`` ones are
        negatives."""
        # The square root has no finite gradient at 0.
        distances = (2 - 2 * scores).clamp_min(torch.finfo(scores.dtype).eps).sqrt()
        query, other = positive.nonzero(as_tuple=True)
        costs = (
            relu(self.margin + distances[query, other].unsqueeze(1) - distances[query])
            * ~related[query]
        )
        return costs.topk(min(self.max_violations, costs.shape[1]), dim=1).values.sum()
