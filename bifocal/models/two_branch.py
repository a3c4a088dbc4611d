"""Two-branch model: an image encoder, a text encoder, and the cosine of their vectors."""

from collections.abc import Collection
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.models.base import Model
from bifocal.models.batch import Batch
from bifocal.scores import Scores
from bifocal.text import TextBatch


class TwoBranchModel(Model):
    """Images and captions in one space, scored by their cosine.

    Engilberge, "Deep inside visual-semantic embeddings", 2020, section 3.2; Wang, Li, Lazebnik,
    CVPR 2016, figure 1. Other arguments: see ``bifocal.models.base.Model``.

    Shape:
        batch of N images and M captions -> Scores with cross (N, M), visual (N, N), textual (M, M).

    Example:
        >>> import torch
        >>> from bifocal.image_encoders import SMILEEncoder
        >>> from bifocal.text_encoders import GRUEncoder
        >>> model = TwoBranchModel(
        ...     SMILEEncoder(6, 8), GRUEncoder(5, 8), text_format="tokens", vocabulary_size=9
        ... )
        >>> model.embed_captions(
        ...     TextBatch(torch.tensor([[2, 3], [4, 0]]), torch.tensor([2, 1]))
        ... ).shape
        torch.Size([2, 8])
    """

    single_vector: ClassVar[bool] = True
    scores: ClassVar[Collection[str]] = ("visual", "textual")

    def forward(self, batch: Batch) -> Scores:
        return self.score(self.embed_images(batch.regions), self.embed_captions(batch.text))

    def score(self, images: Tensor, captions: Tensor) -> Scores:
        """Return the scores of embeddings (N, d) and (M, d)."""
        # Losses subtract cosines that are nearly equal: half precision would round their difference
        # away.
        with torch.autocast(images.device.type, enabled=False):
            images, captions = (
                normalize(vectors.float(), dim=1)
                if vectors.dtype in (torch.bfloat16, torch.float16)
                else vectors
                for vectors in (images, captions)
            )
            return Scores(images @ captions.T, images @ images.T, captions @ captions.T)

    def embed_images(self, regions: RegionBatch) -> Tensor:
        """Return the embeddings (N, d), of unit norm, of N images."""
        # Pixels stay bytes until they are cropped: as floats, a batch of whole images takes four
        # times the memory.
        reads_pixels = self.image_encoder.reads_pixels
        features = regions.features if reads_pixels else regions.features.to(self.dtype)
        embeddings: Tensor = self.image_encoder(features, regions.mask)
        return embeddings

    def embed_captions(self, text: TextBatch) -> Tensor:
        """Return the embeddings (M, d), of unit norm, of M captions."""
        embeddings: Tensor = self.text_encoder(self.text_vectors(text), text.lengths)
        return embeddings
