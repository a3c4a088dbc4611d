"""Sizes of the batches that a sampler will draw from a published corpus."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ExpectedBatches:
    """Batches of one epoch, before there is a dataset.

    Attributes:
        images: images, or boxes, of a batch.
        captions: captions, or phrases, of a batch.
        steps: batches of an epoch.
        embedded_images: images that are embedded at the beginning of each epoch, to mine with.
        triplets: whether the batch consists of triplets of images with one text each.
        regions: regions of each image of the batch; None for all that are stored.
    """

    images: int
    captions: int
    steps: int
    embedded_images: int = 0
    triplets: bool = False
    regions: int | None = None

    def matches(self) -> Tensor:
        """Return the matches (images, captions) of a batch: the captions divided evenly among the images.

        Example:
            >>> ExpectedBatches(images=2, captions=4, steps=9).matches().int().tolist()
            [[1, 1, 0, 0], [0, 0, 1, 1]]
        """
        if self.triplets:
            third = torch.arange(self.images // 3)
            relevance = torch.zeros(self.images, self.images, dtype=torch.int8)
            relevance[third, third + len(third)], relevance[third, third + 2 * len(third)] = 1, -1
            return relevance
        image_of_caption = torch.arange(self.captions) * self.images // self.captions
        return torch.arange(self.images).unsqueeze(1) == image_of_caption
