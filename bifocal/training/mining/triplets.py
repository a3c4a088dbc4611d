"""Mining of image triplets for semantic retrieval: Gordo and Larlus, CVPR 2017, sections 5.1 and 6.1."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import relu

from bifocal.training.pairs.semantic import SemanticPairs

BLOCK = 256
"""Images whose texts are compared with all others at once."""


def relevant_images(pairs: SemanticPairs, neighbors: int = 32) -> Tensor:
    """Return the other images with the nearest texts by dot product, (N, neighbors), nearest first; section 5.1."""
    nearest = []
    for rows in torch.arange(len(pairs)).split(BLOCK):
        scores = torch.from_numpy((pairs.vectors[rows.numpy()] @ pairs.vectors.T).toarray())
        scores[torch.arange(len(rows)), rows] = -torch.inf
        nearest.append(scores.topk(min(neighbors, len(pairs) - 1), dim=1).indices)
    return torch.cat(nearest)


def mine_triplets(
    similarities: Sequence[tuple[float, Tensor]], relevance: Tensor, margin: float, triplets_per_pair: int = 100
) -> Tensor:
    """Return the triplets with the largest loss per query and relevant image, in a pool of P images.

    The first Q images of the pool are the queries. The loss is the weighted sum of the trained equations (1)-(3);
    ``similarities`` has the weight and the similarity (Q, P) of each. ``relevance`` is (Q, P) bool. Triplets without a
    loss have no gradient and are left out. Return (T, 3) int64: query, relevant and irrelevant image.
    """
    mined = []
    for query, is_relevant in enumerate(relevance):
        relevant = is_relevant.nonzero().flatten()
        irrelevant = (~is_relevant).nonzero().flatten()
        irrelevant = irrelevant[irrelevant != query]
        cost = torch.zeros(len(relevant), len(irrelevant))
        for weight, similarity in similarities:
            scores = similarity[query]
            cost = cost + weight * relu(margin - scores[relevant].unsqueeze(1) + scores[irrelevant])
        largest = cost.topk(min(triplets_per_pair, len(irrelevant)), dim=1)
        pair, column = (largest.values > 0).nonzero(as_tuple=True)
        rows = (torch.full_like(pair, query), relevant[pair], irrelevant[largest.indices[pair, column]])
        mined.append(torch.stack(rows, dim=1))
    return torch.cat(mined)
