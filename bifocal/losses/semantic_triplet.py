"""Triplets of images, compared by their looks and by their texts."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.scores import Scores, check_matches


class SemanticTripletLoss(nn.Module):
    """Visual and joint triplet losses of a query image, a relevant one and an irrelevant one.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, eq. (1)-(3). Image n and text n belong
    together. ``matches`` says what is relevant to the query of each row: positive numbers are, negative ones are not,
    of 0 nothing is said; of a boolean matrix false is irrelevant. No image is compared with itself, nor with its own
    text.

    All weights 1 is the paper's "V+T"; the joint ones 0 is "V"; ``image_to_text`` alone is the WSABIE of its table 2.

    Args:
        margin: m, in units of the score (the paper does not say; 0.1 is that of the authors' earlier retrieval work).
        visual: weight of L_v, eq. (1), images against images.
        image_to_text: weight of L_t1, eq. (2), texts found by an image.
        text_to_image: weight of L_t2, eq. (3), images found by a text.

    Shape:
        scores.cross (N, N), scores.visual (N, N), matches (N, N) -> scalar, the mean over the triplets.

    Raises:
        ValueError: the shapes differ, there are not as many texts as images, or the model gives no scores between
            images.
    """

    def __init__(
        self, margin: float = 0.1, visual: float = 1.0, image_to_text: float = 1.0, text_to_image: float = 1.0
    ) -> None:
        super().__init__()
        self.margin = margin
        self.visual, self.image_to_text, self.text_to_image = visual, image_to_text, text_to_image

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        if scores.cross.shape[0] != scores.cross.shape[1]:
            raise ValueError(
                f"scores {tuple(scores.cross.shape)}: SemanticTripletLoss needs one text for each image, all its "
                "captions as one"
            )
        if scores.visual is None:
            raise ValueError("SemanticTripletLoss needs scores.visual, between images: the model gives none")
        relevance = matches.to(torch.int8) * 2 - 1 if matches.dtype == torch.bool else matches
        relevance = relevance * ~torch.eye(len(matches), dtype=torch.bool, device=matches.device)
        query, relevant, irrelevant = triplets(relevance)
        if not len(query):
            return scores.cross.sum() * 0
        costs = [
            weight * relu(self.margin - part[query, relevant] + part[query, irrelevant])
            for weight, part in (
                (self.visual, scores.visual),
                (self.image_to_text, scores.cross),
                (self.text_to_image, scores.cross.T),
            )
            if weight
        ]
        return torch.stack(costs).sum(dim=0).mean() / 2


def triplets(relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, relevant and irrelevant of all triplets: (N, N) -> three of (T,)."""
    query, relevant = (relevance > 0).nonzero(as_tuple=True)
    pair, irrelevant = (relevance[query] < 0).nonzero(as_tuple=True)
    return query[pair], relevant[pair], irrelevant
