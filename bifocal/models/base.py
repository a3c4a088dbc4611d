"""Base class of the models: two encoders and the word embedding between token ids and the text
encoder."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from bifocal.image_encoders.base import ImageEncoder
from bifocal.onnx.text.captions import FormatName
from bifocal.registry import split
from bifocal.text import TextBatch
from bifocal.text_encoders.base import TextEncoder

TEXT_RANKS: dict[FormatName, int] = {
    "tokens": 3,
    "contextual": 4,
    "vectors": 2,
    "sparse": 2,
}
"""Number of dimensions of the text encoder's input, by text format, after the word embedding of
tokens."""


class Model(nn.Module):
    """Image encoder and text encoder with one joint space.

    If the model has ``single_vector``, an image and a caption each have one vector of unit norm,
    whose dot product is the score. ``config`` holds the arguments of ``build_model``.

    Args:
        image_encoder: maps features to the joint space.
        text_encoder: maps word or caption vectors to the joint space.
        dim: d, dimension of the joint space; ``build_model`` builds both encoders with it. None: as
            the encoders.
        text_format: format of the text, see ``bifocal.text.TextStore``; "tokens" are embedded by
            ``word_embedding``.
        vocabulary_size: rows of ``word_embedding``, row 0 being the padding; None unless the text
            is tokens.
    """

    parts: ClassVar[Mapping[str, str]] = {
        "image_encoder": "bifocal.image_encoders",
        "text_encoder": "bifocal.text_encoders",
    }
    single_vector: ClassVar[bool]
    scores: ClassVar[Collection[str]]
    image_encoder: ImageEncoder
    text_encoder: TextEncoder
    word_embedding: nn.Embedding | None

    def __init__(
        self,
        image_encoder: ImageEncoder,
        text_encoder: TextEncoder,
        *,
        dim: int | None = None,
        text_format: FormatName,
        vocabulary_size: int | None = None,
    ) -> None:
        super().__init__()
        dims = {image_encoder.dim, text_encoder.dim, *(() if dim is None else (dim,))}
        if len(dims) > 1:
            raise ValueError(
                f"{type(image_encoder).__name__} has dimension {image_encoder.dim}, "
                f"{type(text_encoder).__name__} {text_encoder.dim}, and the model dim={dim}: "
                "give all the same, or set only the model's dim"
            )
        if image_encoder.single_vector != self.single_vector:
            expected = (
                "one vector per image" if self.single_vector else "the cells of several levels"
            )
            raise ValueError(
                f"{type(self).__name__} needs an image encoder with {expected}, not "
                f"{type(image_encoder).__name__}"
            )
        if len(text_encoder.input_shape) != TEXT_RANKS[text_format]:
            raise ValueError(
                f"{type(text_encoder).__name__} reads values {text_encoder.input_shape}, and "
                f"the text comes as {text_format}: choose another text encoder or vectorizer"
            )
        if (vocabulary_size is None) == (text_format == "tokens"):
            raise ValueError(
                f"text_format is {text_format!r} and vocabulary_size {vocabulary_size}: tokens "
                "need the size of their vocabulary, other formats have none"
            )
        self.image_encoder, self.text_encoder, self.text_format = (
            image_encoder,
            text_encoder,
            text_format,
        )
        self.word_embedding = None
        if vocabulary_size is not None:
            self.word_embedding = nn.Embedding(
                vocabulary_size, text_encoder.input_dim, padding_idx=0
            )
        self.config: dict[str, Any] = {}

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        for encoder in cls.parts:
            if "dim" in split(arguments[encoder])[1]:
                yield f"{encoder}.dim: leave it out, it is dim of the model"

    def text_vectors(self, text: TextBatch) -> Tensor:
        """Return the input of the text encoder: embedded tokens (M, T, K), or vectors as they
        are."""
        if self.word_embedding is not None:
            return cast(Tensor, self.word_embedding(text.values))
        return text.values.to(self.dtype)

    @property
    def feature_dim(self) -> int:
        """D, channels of a region's feature, or 3 for pixels."""
        return self.image_encoder.input_dim

    @property
    def text_dim(self) -> int:
        """K, dimension of a word's or a caption's vector."""
        return self.text_encoder.input_dim

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the parameters."""
        return next(self.image_encoder.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.image_encoder.parameters()).device
