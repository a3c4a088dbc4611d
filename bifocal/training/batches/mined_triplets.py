"""Triplets of images that mean the same and images that do not, mined from a pool with the model as it is.

Gordo and Larlus, "Beyond instance-level image retrieval: leveraging captions to learn a global visual representation
for semantic retrieval", CVPR 2017, sections 5.1 and 6.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.sparse import csr_matrix, vstack
from torch import Generator, Tensor
from torch.nn.functional import normalize

from bifocal.batch import Batch, ImageCaptionPairs, to_device
from bifocal.embedding import DualEncoder
from bifocal.features import RegionBatch
from bifocal.text import Text

BATCH, BLOCK = 256, 1024
"""Images that are embedded at once, and those whose texts are compared at once."""


class SemanticPairs:
    """Images with one text each, all captions of it together, for batches of triplets.

    Args:
        pairs: whose text is one vector for each caption (TFIDF); an image's is their sum, l2-normalised.

    Raises:
        ValueError: the text is of another kind.
    """

    def __init__(self, pairs: ImageCaptionPairs) -> None:
        if pairs.text.kind not in ("vectors", "sparse"):
            raise ValueError(f"texts of images need one vector for each caption, not {pairs.text.kind}: use TFIDF")
        self.pairs = pairs
        order = pairs.image_of_caption.argsort(stable=True)
        self._captions = order.split(pairs.image_of_caption.bincount(minlength=len(pairs.image_ids)).tolist())

    def __len__(self) -> int:
        """Number of images."""
        return len(self.pairs.image_ids)

    def batch(self, triplets: Tensor, rank: int = 0, ranks: int = 1) -> Batch:
        """Images and texts of triplets (3 B,): B queries, their relevant images, their irrelevant ones.

        ``matches`` (3 B, 3 B) is 1 between a query and its relevant image, -1 between it and its irrelevant one, else
        0: what ``SemanticTripletLoss`` reads.

        Raises:
            ValueError: several processes are to share it.
        """
        if ranks > 1:
            raise ValueError("mined triplets are trained on in one process: start it without torchrun")
        count = len(triplets) // 3
        matches = torch.zeros(3 * count, 3 * count, dtype=torch.int8)
        query = torch.arange(count)
        matches[query, query + count], matches[query, query + 2 * count] = 1, -1
        return Batch([self.pairs.image_ids[row] for row in triplets.tolist()], self.regions(triplets),
                     self.texts(triplets), matches)  # fmt: skip

    def regions(self, images: Tensor) -> RegionBatch:
        """Features of these images."""
        store = self.pairs.features
        return store.gather(store.rows(self.pairs.image_ids[row] for row in images.tolist()))

    def texts(self, images: Tensor) -> Text:
        """The text of each of these images, (n, K)."""
        captions = [self._captions[row] for row in images.tolist()]
        place = torch.arange(len(images)).repeat_interleave(torch.tensor([len(own) for own in captions]))
        values = self.pairs.caption_text(torch.cat(captions)).values
        sums = values.new_zeros(len(images), values.shape[1]).index_add_(0, place, values)
        return Text(normalize(sums, dim=1), torch.ones(len(images), dtype=torch.int64))


def relevant_images(pairs: SemanticPairs, neighbours: int = 32) -> Tensor:
    """The ``neighbours`` images whose texts have the highest dot product with that of each image; section 5.1.

    Shape:
        -> (N, neighbours) int64, nearest first, never the image itself.
    """
    texts = vstack([csr_matrix(pairs.texts(rows).values.numpy()) for rows in torch.arange(len(pairs)).split(BLOCK)])
    found = []
    for rows in torch.arange(len(pairs)).split(BLOCK):
        scores = torch.from_numpy((texts[rows.numpy()] @ texts.T).toarray())
        scores[torch.arange(len(rows)), rows] = -torch.inf
        found.append(scores.topk(min(neighbours, len(pairs) - 1), dim=1).indices)
    return torch.cat(found)


def mine_triplets(embeddings: Tensor, relevance: Tensor, queries: int, margin: float, hardest: int = 100) -> Tensor:
    """Of every query and relevant image of a pool, the triplets of the greatest visual loss, eq. (1).

    Triplets without a loss are left out: nothing is learnt from them.

    Args:
        embeddings: of the pool.
        relevance: whether an image is relevant to a query; the query itself is neither.
        queries: the first so many images of the pool are asked with.
        margin: m of eq. (1).
        hardest: triplets that are kept of each query and relevant image.

    Shape:
        embeddings (P, d), relevance (queries, P) bool -> (T, 3) int64, rows of query, relevant, irrelevant image.
    """
    mined = []
    for query in range(queries):
        scores = embeddings @ embeddings[query]
        (relevant,) = relevance[query].nonzero(as_tuple=True)
        irrelevant = ~relevance[query]
        irrelevant[query] = False
        # For a given pair the loss grows with the irrelevant image's score alone: one order serves all pairs.
        rows = scores.masked_fill(~irrelevant, -torch.inf).topk(min(hardest, int(irrelevant.sum()))).indices
        pairs = torch.cartesian_prod(relevant, rows).view(-1, 2)
        costly = margin - scores[pairs[:, 0]] + scores[pairs[:, 1]] > 0
        kept = pairs[costly]
        mined.append(torch.cat([torch.full((len(kept), 1), query), kept], dim=1))
    return torch.cat(mined)


@dataclass
class MiningSampler:
    """Batches of triplets, mined anew for every epoch: an epoch is the ``updates`` between two minings.

    Args:
        model: as it is when an epoch begins.
        pairs: of the training split.
        relevant: of each image, see ``relevant_images``.
        batch_size: triplets.
        seed: of all draws.
        queries: images that are drawn to ask with.
        relevant_each: relevant images that are drawn for each of them.
        hardest: triplets of each query and relevant image that may be drawn.
        updates: batches of an epoch.
        margin: of the loss.
    """

    model: DualEncoder
    pairs: SemanticPairs
    relevant: Tensor
    batch_size: int
    seed: int
    queries: int = 500
    relevant_each: int = 9
    hardest: int = 100
    updates: int = 64
    margin: float = 0.1

    def __call__(self, epoch: int) -> Sequence[Tensor]:
        """The rows of the images of each batch, (3 batch_size,): queries, relevant images, irrelevant images.

        Raises:
            ValueError: the model separates the whole pool, and no triplet is left.
        """
        generator = Generator().manual_seed(self.seed * 10_007 + epoch)
        pool, queries = self._pool(generator)
        relevance = (self.relevant[pool[:queries]].unsqueeze(2) == pool).any(dim=1)
        triplets = mine_triplets(self._embed(pool), relevance, queries, self.margin, self.hardest)
        if not len(triplets):
            raise ValueError(f"epoch {epoch + 1}: no triplet of the pool has a loss; raise the margin, or end here")
        drawn = torch.randint(len(triplets), (self.updates, self.batch_size), generator=generator)
        return [pool[triplets[rows]].T.flatten() for rows in drawn]

    def _pool(self, generator: Generator) -> tuple[Tensor, int]:
        """Rows of the images of the pool, each once, the queries first; and how many are queries."""
        queries = torch.randperm(len(self.pairs), generator=generator)[: self.queries]
        neighbours = self.relevant.shape[1]
        places = torch.rand(len(queries), neighbours, generator=generator).argsort(dim=1)[:, : self.relevant_each]
        others = self.relevant[queries].gather(1, places).unique()
        return torch.cat([queries, others[~torch.isin(others, queries)]]), len(queries)

    @torch.inference_mode()
    def _embed(self, pool: Tensor) -> Tensor:
        self.model.eval()
        device = self.model.device
        chunks = (to_device(self.pairs.regions(rows), device) for rows in pool.split(BATCH))
        return torch.cat([self.model.embed_images(chunk).float().cpu() for chunk in chunks])
