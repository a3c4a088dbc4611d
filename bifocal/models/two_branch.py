"""Two-branch model: an image encoder, a text encoder, and the cosine between them."""

from typing import Protocol

import torch
from torch import Tensor, nn

from bifocal.batch import Batch
from bifocal.features import RegionBatch
from bifocal.scores import Scores
from bifocal.text import Text


class ImageEncoder(Protocol):
    """features (B, R, D), mask (B, R) bool -> (B, d), of unit norm."""

    def __call__(self, features: Tensor, mask: Tensor) -> Tensor: ...


class TextEncoder(Protocol):
    """values (B, T, K), lengths (B,) int64 -> (B, d), of unit norm."""

    def __call__(self, values: Tensor, lengths: Tensor) -> Tensor: ...


class TwoBranchModel(nn.Module):
    """Images and captions in one space, the score being their cosine.

    Engilberge, "Deep inside visual-semantic embeddings", 2020, section 3.2; Wang, Li, Lazebnik, CVPR 2016, figure 1.

    Args:
        image_encoder, text_encoder: to embeddings of one dimension d, of unit norm.
        words: the vectors that token ids stand for (w2v of eq. (3.1)), row 0 being the padding; None if the text
            comes as vectors.
        feature_dim: D, channels of an image's features.
        text_dim: K, of a word's or a caption's vector.
        text_kind: "tokens", or how the text comes otherwise, see ``bifocal.text.TextStore``.

    Shape:
        batch of N images and M captions -> Scores with cross (N, M), visual (N, N), textual (M, M).
    """

    def __init__(
        self,
        image_encoder: nn.Module,
        text_encoder: nn.Module,
        words: nn.Embedding | None = None,
        *,
        feature_dim: int,
        text_dim: int,
        text_kind: str,
    ) -> None:
        super().__init__()
        self.feature_dim, self.text_dim, self.text_kind = feature_dim, text_dim, text_kind
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder
        self.words = words

    def forward(self, batch: Batch) -> Scores:
        return self.score(self.embed_images(batch.regions), self.embed_captions(batch.text))

    def score(self, images: Tensor, captions: Tensor) -> Scores:
        """Scores of embeddings (N, d) and (M, d)."""
        return Scores(images @ captions.T, images @ images.T, captions @ captions.T)

    def embed_images(self, regions: RegionBatch) -> Tensor:
        """(N, d) from features (N, R, D) and their mask."""
        encode: ImageEncoder = self.image_encoder
        return encode(regions.features.to(self.dtype), regions.mask)

    def embed_captions(self, text: Text) -> Tensor:
        """(M, d) from token ids (M, T) or vectors, and their lengths."""
        encode: TextEncoder = self.text_encoder
        values = text.values.to(self.dtype) if self.words is None else self.words(text.values)
        return encode(values, text.lengths)

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return next(self.image_encoder.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.image_encoder.parameters()).device
