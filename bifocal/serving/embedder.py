"""Embeddings of sentences, images and features from exported ONNX graphs."""

from collections.abc import Sequence
from typing import Any

from bifocal.serving.encoders import Array, Encoders
from bifocal.serving.image_files import ImageFile


class Embedder(Encoders):
    """A model with one vector per sentence and per image; see ``Encoders``."""

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the embeddings (B, d) float32 of B sentences."""
        return self.encode_sentences(sentences)[0]

    def embed_images(self, images: Sequence[ImageFile]) -> Array:
        """Return the embeddings (B, d) float32 of B image files: their bytes, or base64."""
        return self.encode_images(images)

    def embed_features(self, features: Sequence[Any]) -> Array:
        """Return the embeddings (B, d) float32 of B arrays (R, D), or nested lists; R may differ."""
        return self.encode_features(features)
