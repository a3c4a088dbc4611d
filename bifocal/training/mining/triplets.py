"""Mining of image triplets for semantic retrieval.

Gordo and Larlus, "Beyond instance-level image retrieval: leveraging captions to learn a global visual representation
for semantic retrieval", CVPR 2017, sections 5.1 and 6.1.
"""

import torch
from scipy.sparse import csr_matrix, vstack
from torch import Tensor

from bifocal.training.pairs.semantic import SemanticPairs

BLOCK = 1024
"""Images whose texts are compared with all others at once."""


def relevant_images(pairs: SemanticPairs, neighbors: int = 32) -> Tensor:
    """Return the ``neighbors`` images whose texts have the highest dot product with each image's text; section 5.1.

    Shape:
        -> (N, neighbors) int64, nearest first, without the image itself.
    """
    texts = vstack([csr_matrix(pairs.texts(rows).values.numpy()) for rows in torch.arange(len(pairs)).split(BLOCK)])
    nearest = []
    for rows in torch.arange(len(pairs)).split(BLOCK):
        scores = torch.from_numpy((texts[rows.numpy()] @ texts.T).toarray())
        scores[torch.arange(len(rows)), rows] = -torch.inf
        nearest.append(scores.topk(min(neighbors, len(pairs) - 1), dim=1).indices)
    return torch.cat(nearest)


def mine_triplets(
    embeddings: Tensor, relevance: Tensor, queries: int, margin: float, triplets_per_pair: int = 100
) -> Tensor:
    """Return the triplets with the largest visual loss, eq. (1), of each query and relevant image of a pool.

    Triplets without a loss are left out, because they have no gradient.

    Args:
        embeddings: of the images of the pool; the first ``queries`` images are the queries.
        relevance: whether an image is relevant to a query.
        queries: number of queries.
        margin: m of eq. (1), in units of the score.
        triplets_per_pair: triplets kept per query and relevant image.

    Shape:
        embeddings (P, d), relevance (queries, P) bool -> (T, 3) int64, rows of query, relevant and irrelevant image.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.4]])
        >>> relevance = torch.tensor([[False, True, False]])
        >>> mine_triplets(embeddings, relevance, queries=1, margin=0.1).tolist()
        [[0, 1, 2]]
    """
    mined = []
    for query in range(queries):
        scores = embeddings @ embeddings[query]
        (relevant,) = relevance[query].nonzero(as_tuple=True)
        irrelevant = ~relevance[query]
        irrelevant[query] = False
        # For a given pair the loss depends on the irrelevant image's score alone: one order serves all pairs.
        count = min(triplets_per_pair, int(irrelevant.sum()))
        hardest = scores.masked_fill(~irrelevant, -torch.inf).topk(count).indices
        pairs = torch.cartesian_prod(relevant, hardest).view(-1, 2)
        has_loss = margin - scores[pairs[:, 0]] + scores[pairs[:, 1]] > 0
        kept = pairs[has_loss]
        mined.append(torch.cat([torch.full((len(kept), 1), query), kept], dim=1))
    return torch.cat(mined)
