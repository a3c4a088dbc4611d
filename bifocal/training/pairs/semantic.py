"""Images with one text each, for semantic retrieval."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.batch import Batch, ImageCaptionPairs
from bifocal.features import RegionBatch
from bifocal.text import TextBatch


class SemanticPairs:
    """Images with one text each: the l2-normalized sum of the vectors of their captions.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 3: the joined captions as tf-idf.

    Args:
        pairs: images whose captions are one vector each (``TFIDF``).

    Raises:
        ValueError: the text has another format.
    """

    def __init__(self, pairs: ImageCaptionPairs) -> None:
        if pairs.text.format.name not in ("vectors", "sparse"):
            raise ValueError(
                f"semantic pairs need one vector per caption, not {pairs.text.format.name}: vectorize with TFIDF"
            )
        self.pairs = pairs
        order = pairs.image_of_caption.argsort(stable=True)
        self._captions = order.split(pairs.image_of_caption.bincount(minlength=len(pairs.image_ids)).tolist())

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.pairs.image_ids)

    def batch(self, triplets: Tensor, rank: int = 0, world_size: int = 1) -> Batch:
        """Return images and texts of B triplets: B queries, then their relevant images, then their irrelevant images.

        ``matches`` (3 B, 3 B) is 1 between a query and its relevant image, -1 between a query and its irrelevant image
        and 0 elsewhere, as ``SemanticTripletLoss`` takes it.

        Shape:
            triplets (3 B,) rows of images.

        Raises:
            ValueError: several processes share the batch.
        """
        if world_size > 1:
            raise ValueError("MinedTriplets trains in one process: start it without torchrun")
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
        captions = [self._captions[row] for row in images.tolist()]
        image = torch.arange(len(images)).repeat_interleave(torch.tensor([len(rows) for rows in captions]))
        values = self.pairs.caption_text(torch.cat(captions)).values
        sums = values.new_zeros(len(images), values.shape[1]).index_add_(0, image, values)
        return TextBatch(normalize(sums, dim=1), torch.ones(len(images), dtype=torch.int64))
