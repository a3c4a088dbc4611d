"""Base class of the localizers: region vectors, region scores."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bifocal.features import RegionBatch

TextContext = Literal["phrase", "sentence"]


class RegionScores(NamedTuple):
    """Score (N, R) of a text for each region, -inf for padding, and relative boxes x0 y0 x1 y1 (N,
    R, 4)."""

    scores: Tensor
    boxes: Tensor


class RegionVectors(NamedTuple):
    """Text-independent vectors (N, R, d) or (N, L, R, d), with a mask and relative boxes x0 y0 x1
    y1."""

    vectors: Tensor
    mask: Tensor
    boxes: Tensor

    def of(self, rows: Tensor) -> "RegionVectors":
        """Return the images of ``rows`` (n,); a row may occur several times."""
        return RegionVectors(*(part[rows] for part in self))


class ServedScores(NamedTuple):
    """How ``bifocal.onnx.heatmaps`` computes the scores of a localizer without torch.

    ``scores`` is a name of ``bifocal.onnx.heatmaps.SCORES``. ``vectors`` is "regions" for the
    second output of the exported image encoder, "cells" for its first, "single_regions" for the
    embedding of each region by itself.
    """

    scores: str
    vectors: str
    arguments: Mapping[str, Any] = MappingProxyType({})


class Localizer(ABC):
    """Find a text in an image: encode the regions once, then score them for each text.

    Attributes:
        text_context: "sentence" if ``score`` reads the vectors of a phrase's words in the context
            of their sentence; "phrase" if the phrase's vector is enough.
        k: the value in which the ``candidates`` differ; None without candidates.
    """

    text_context: TextContext = "phrase"
    k: int | None = None

    @abstractmethod
    def encode(self, encoder: Any, regions: RegionBatch) -> RegionVectors:
        """Return the text-independent vectors of the regions; ``ValueError`` if ``encoder`` does
        not fit."""

    def score(
        self, vectors: RegionVectors, texts: Tensor, words: Sequence[Tensor | None] | None = None
    ) -> RegionScores:
        """Score the regions of N images, each for one text: by default the dot products of
        ``region_scores``.

        Args:
            texts: (N, d), embeddings.
            words: for ``text_context`` "sentence", the vectors (t, d) of each phrase's words in
                their sentence; None for a phrase without a sentence. Ignored for "phrase".
        """
        return masked(region_scores(vectors.vectors, texts), vectors)

    def __call__(self, encoder: Any, regions: RegionBatch, texts: Tensor) -> RegionScores:
        """Encode the regions, then score them."""
        return self.score(self.encode(encoder, regions), texts)

    def for_model(self, model: Any) -> "Localizer | None":
        """Return the localizer to use with ``model``: this one, unless its scores depend on options
        of the model."""
        return self

    def served(self) -> ServedScores | None:
        """Return how the scores are computed from exported graphs; None if they need torch."""
        return None

    def candidates(self, dim: int) -> Mapping[int, "Localizer"]:
        """Return localizers for embeddings of d = ``dim`` to choose from on validation images, by
        k; may be empty."""
        return {}


def require(encoder: Any, method: str, localizer: Localizer, example: str) -> None:
    """Raise ``ValueError`` unless ``encoder`` has the ``method`` that ``localizer`` calls, as
    ``example`` has."""
    if not hasattr(encoder, method):
        raise ValueError(
            f"{type(localizer).__name__} needs an encoder with {method}(), such as {example}; "
            f"the model has a {type(encoder).__name__}"
        )


def region_scores(regions: Tensor, texts: Tensor) -> Tensor:
    """Return the dot products L[r] = <z, G[:, r]>: Engilberge's thesis, 2020, eq. (4.3).

    Args:
        regions: G, the regions in the joint space, before pooling.
        texts: z, the embedding of one text per image.

    Shape:
        regions (N, R, d), texts (N, d) -> (N, R)

    Raises:
        ValueError: the dimensions differ.

    Example:
        >>> region_scores(torch.tensor([[[1.0, 0.0], [0.6, 0.8]]]), torch.tensor([[0.0, 1.0]]))
        tensor([[0.0000, 0.8000]])
    """
    check_texts(regions, texts)
    return torch.einsum("nrd,nd->nr", regions, texts)


def check_texts(regions: Tensor, texts: Tensor) -> None:
    """Raise ``ValueError`` unless the regions (N, R, d) have one text (N, d) per image."""
    if regions.ndim != 3 or texts.shape != (len(regions), regions.shape[2]):
        raise ValueError(
            f"regions {tuple(regions.shape)} and texts {tuple(texts.shape)} differ: "
            "expected (N, R, d) and one text (N, d) for each image"
        )


def masked(scores: Tensor, vectors: RegionVectors) -> RegionScores:
    """Return ``scores`` (N, R) with -inf where there is no region."""
    return RegionScores(scores.masked_fill(~vectors.mask, -torch.inf), vectors.boxes)


class AutoLocalizer:
    """Choose the localizer that belongs to the encoder, see
    ``bifocal.image_encoders.base.ImageEncoder.localizer``."""

    def for_model(self, model: Any) -> Localizer | None:
        """Return the localizer of the model's image encoder; None if it has none."""
        localizer: Localizer | None = model.image_encoder.localizer()
        return localizer and localizer.for_model(model)
