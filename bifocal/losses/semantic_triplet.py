"""Triplet losses of semantic image retrieval."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches

T = TypeVar("T")
WEIGHTS = ("visual_weight", "image_to_text_weight", "text_to_image_weight")


class SemanticTripletLoss(nn.Module):
    """Visual and joint triplet losses of a query image, a relevant image and an irrelevant image.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, eq. (1)-(3). Text n
    belongs to image n. Row q of ``matches`` is the relevance of all images to query q: positive for
    relevant, negative for irrelevant, 0 for unknown; in a boolean matrix False is irrelevant.
    Images are never compared with themselves or with their own text.

    Weights of 1 give "V+T" of the paper; only ``visual_weight`` gives "V"; only
    ``image_to_text_weight`` is the WSABIE of table 2.

    Args:
        margin: m, in units of the score (not in the paper; 0.1 is the value of the authors' earlier
            retrieval work).
        visual_weight: of L_v, eq. (1), images against images.
        image_to_text_weight: of L_t1, eq. (2), where an image is the query for texts.
        text_to_image_weight: of L_t2, eq. (3), where a text is the query for images.

    Shape:
        scores.cross (N, N), scores.visual (N, N), matches (N, N) -> scalar, the mean over the
        triplets.

    Raises:
        ValueError: the shapes differ, the numbers of texts and images differ, or scores between
            images are missing.

    Example:
        >>> relevance = torch.tensor([[0, 1, -1], [0, 0, 0], [0, 0, 0]])  # one triplet
        >>> scores = Scores(cross=torch.eye(3), visual=torch.eye(3))
        >>> round(
        ...     SemanticTripletLoss(margin=0.1)(scores, relevance).item(), 2
        ... )  # 3 terms of 0.1 / 2
        0.15
    """

    def __init__(
        self,
        margin: float = 0.1,
        visual_weight: float = 1.0,
        image_to_text_weight: float = 1.0,
        text_to_image_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.margin = margin
        self.visual_weight = visual_weight
        self.image_to_text_weight, self.text_to_image_weight = (
            image_to_text_weight,
            text_to_image_weight,
        )

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        if not any(arguments.get(weight, 1.0) for weight in WEIGHTS):
            yield f"{', '.join(WEIGHTS)} are all 0, so there is nothing to train: set one of them"

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        if scores.cross.shape[0] != scores.cross.shape[1]:
            raise ValueError(
                f"scores {tuple(scores.cross.shape)}: SemanticTripletLoss needs one text per "
                "image: join the captions of an image"
            )
        if scores.visual is None:
            raise ValueError(
                "SemanticTripletLoss needs scores.visual, between images: train a "
                "TwoBranchModel with it"
            )
        relevance = matches.to(torch.int8) * 2 - 1 if matches.dtype == torch.bool else matches
        relevance = relevance * ~torch.eye(len(matches), dtype=torch.bool, device=matches.device)
        query, relevant, irrelevant = triplets(relevance)
        if not len(query):
            return scores.cross.sum() * 0
        parts = self.weighted(scores.visual, scores.cross, scores.cross.T)
        costs = [
            weight * relu(self.margin - part[query, relevant] + part[query, irrelevant])
            for weight, part in parts
        ]
        return torch.stack(costs).sum(dim=0).mean() / 2

    @property
    def uses_texts(self) -> bool:
        """Whether a joint loss has a weight."""
        return bool(self.image_to_text_weight or self.text_to_image_weight)

    def weighted(self, visual: T, image_to_text: T, text_to_image: T) -> list[tuple[float, T]]:
        """Return the scores that eq. (1)-(3) compare, each with its weight, unless it is 0."""
        weights = (self.visual_weight, self.image_to_text_weight, self.text_to_image_weight)
        parts = zip(weights, (visual, image_to_text, text_to_image), strict=True)
        return [(weight, part) for weight, part in parts if weight]


def triplets(relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows (T,) of query, relevant and irrelevant image for all triplets in
    ``relevance`` (N, N)."""
    query, relevant = (relevance > 0).nonzero(as_tuple=True)
    pair, irrelevant = (relevance[query] < 0).nonzero(as_tuple=True)
    return query[pair], relevant[pair], irrelevant
