"""Images with one text each as training pairs for semantic retrieval, and triplets, which the
current model mines."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import relu

from bifocal.features import RegionBatch
from bifocal.metrics.ranking.semantic_relevance import sum_by_image
from bifocal.models.batch import (
    BATCH,
    Batch,
    DualEncoder,
    ImageCaptionPairs,
    embed_images,
    embed_texts,
)
from bifocal.text import TextBatch

BLOCK = 256
"""Images whose texts are compared with all others at once."""


class SemanticPairs:
    """Images with one text each: the l2-normalized sum of the vectors of their captions, a sparse
    matrix.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 4; with the
    vectors of ``TFIDF(documents="images")`` the sum is the tf-idf of all words of an image.
    """

    def __init__(self, pairs: ImageCaptionPairs) -> None:
        if pairs.text.format.name not in ("vectors", "sparse"):
            raise ValueError(
                f"semantic pairs need one vector per caption, not {pairs.text.format.name}: "
                "vectorize with TFIDF"
            )
        self.pairs = pairs
        self.vectors = sum_by_image(
            pairs.caption_matrix(), pairs.image_of_caption.numpy(), len(pairs.image_ids)
        )

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.pairs.image_ids)

    def batch(self, triplets: Tensor, rank: int = 0, world_size: int = 1) -> Batch:
        """Return images and texts of B triplets: B queries, then their relevant images, then their
        irrelevant images.

        ``matches`` (3 B, 3 B) has 1 for a query and its relevant image, -1 for its irrelevant
        image, and 0 elsewhere.
        """
        if world_size > 1:
            raise ValueError(
                "MinedTriplets and OrderedTriplets train in one process: start it without torchrun"
            )
        count = len(triplets) // 3
        matches = torch.zeros(3 * count, 3 * count, dtype=torch.int8)
        query = torch.arange(count)
        matches[query, query + count], matches[query, query + 2 * count] = 1, -1
        image_ids = [self.pairs.image_ids[row] for row in triplets.tolist()]
        return Batch(image_ids, self.regions(triplets), self.texts(triplets), matches)

    def regions(self, images: Tensor) -> RegionBatch:
        """Return the features of the images of these rows (n,)."""
        store = self.pairs.features
        return store.gather(store.rows(self.pairs.image_ids[row] for row in images.tolist()))

    def texts(self, images: Tensor) -> TextBatch:
        """Return the texts (n, K) of the images of these rows (n,)."""
        dense = torch.from_numpy(self.vectors[images.numpy()].toarray()).float()
        return TextBatch(dense, torch.ones(len(images), dtype=torch.int64))

    def similarity(self, first: Tensor, second: Tensor) -> Tensor:
        """Return s of section 5.1, the product of the texts, for n image pairs in these rows (n,)
        and (n,)."""
        products = self.vectors[first.numpy()].multiply(self.vectors[second.numpy()])
        return torch.from_numpy(products.sum(axis=1).A1)

    def embed_images(self, model: DualEncoder, images: Tensor) -> Tensor:
        """Return the embeddings (n, d) of the images of these rows (n,); leave the model in
        evaluation mode."""
        store = self.pairs.features
        rows = store.rows(self.pairs.image_ids[row] for row in images.tolist())
        return embed_images(model, store.batches(rows, BATCH))

    def embed_texts(self, model: DualEncoder, images: Tensor) -> Tensor:
        """Return the embeddings (n, d) of the texts of these images; leave the model in evaluation
        mode."""
        return embed_texts(model, (self.texts(rows) for rows in images.split(BATCH)))


def relevant_images(pairs: SemanticPairs, neighbors: int = 32) -> Tensor:
    """Return the other images with the nearest texts by dot product, (N, neighbors), nearest first;
    section 5.1."""
    nearest = []
    for rows in torch.arange(len(pairs)).split(BLOCK):
        scores = torch.from_numpy((pairs.vectors[rows.numpy()] @ pairs.vectors.T).toarray())
        scores[torch.arange(len(rows)), rows] = -torch.inf
        nearest.append(scores.topk(min(neighbors, len(pairs) - 1), dim=1).indices)
    return torch.cat(nearest)


def mine_triplets(
    similarities: Sequence[tuple[float, Tensor]],
    relevance: Tensor,
    margin: float,
    triplets_per_pair: int = 100,
) -> Tensor:
    """Return the triplets with the largest loss per query and relevant image, in a pool of P
    images.

    The first Q images of the pool are the queries. The loss is the weighted sum of the trained
    equations (1)-(3); ``similarities`` has the weight and the similarity (Q, P) of each.
    ``relevance`` is (Q, P) bool. Triplets without a loss have no gradient and are left out. Return
    (T, 3) int64: query, relevant and irrelevant image.
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
        rows = (
            torch.full_like(pair, query),
            relevant[pair],
            irrelevant[largest.indices[pair, column]],
        )
        mined.append(torch.stack(rows, dim=1))
    return torch.cat(mined)
