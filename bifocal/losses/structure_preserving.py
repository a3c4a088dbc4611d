"""Ranking across the views, and neighbourhoods kept within each."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches


class StructurePreservingLoss(nn.Module):
    """Bidirectional ranking constraints with structure-preserving constraints, on Euclidean distances.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, eq. (1)-(5). The
    neighbours of a caption are the other captions of an image it describes, those of an image the other images that a
    caption of it describes; so a batch needs several captions of an image (``added_captions``: 1), or several
    images of a phrase, for the last two terms to have any triplet. Of the triplets of each positive pair the ``top``
    costliest count.

    Args:
        margin: m, in units of the distance between unit vectors, which spans [0, 2].
        image_weight: lambda_1, of the constraints (2) on images, captions being the queries.
        visual_weight: lambda_2, of the neighbourhoods (3) of images.
        textual_weight: lambda_3, of the neighbourhoods (4) of captions.
        top: K, violations that count for each positive pair and term.

    Shape:
        scores.cross (N, M), scores.visual (N, N), scores.textual (M, M), cosines; matches (N, M) bool -> scalar, the
        sum of eq. (5) divided by the number of matches.

    Raises:
        ValueError: the shapes differ, or a term is wanted and its scores are not there.
    """

    def __init__(
        self,
        margin: float = 0.1,
        image_weight: float = 2.0,
        visual_weight: float = 0.0,
        textual_weight: float = 0.2,
        top: int = 50,
    ) -> None:
        super().__init__()
        self.margin, self.top = margin, top
        self.image_weight, self.visual_weight, self.textual_weight = image_weight, visual_weight, textual_weight

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        total = self._violations(scores.cross, matches, matches)
        if self.image_weight:
            total = total + self.image_weight * self._violations(scores.cross.T, matches.T, matches.T)
        if self.visual_weight:
            total = total + self.visual_weight * self._within(scores.visual, matches, "visual")
        if self.textual_weight:
            total = total + self.textual_weight * self._within(scores.textual, matches.T, "textual")
        return total / matches.sum()

    def _within(self, scores: Tensor | None, matches: Tensor, view: str) -> Tensor:
        if scores is None:
            raise ValueError(
                f"StructurePreservingLoss needs scores.{view}, which the model lacks: set {view}_weight to 0"
            )
        shared = matches.to(scores.dtype)
        neighbours = shared @ shared.T > 0
        # An element is its own neighbour, at no distance from itself: no triplet, and no negative.
        itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        return self._violations(scores, neighbours & ~itself, neighbours | itself)

    def _violations(self, scores: Tensor, positive: Tensor, related: Tensor) -> Tensor:
        """Sum of the ``top`` costs of each positive pair, over all that is not ``related``."""
        distances = (2 - 2 * scores).clamp_min(torch.finfo(scores.dtype).eps).sqrt()
        query, other = positive.nonzero(as_tuple=True)
        costs = relu(self.margin + distances[query, other].unsqueeze(1) - distances[query]) * ~related[query]
        return costs.topk(min(self.top, costs.shape[1]), dim=1).values.sum()
