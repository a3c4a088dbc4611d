"""Localizer for multi-level grounding: attention of a phrase's words, or its sentence vector, to
the best level."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bifocal.features import RegionBatch
from bifocal.localization.attention import AttentionOptions, phrase_heatmap, sentence_heatmap
from bifocal.localization.base import (
    Localizer,
    RegionScores,
    RegionVectors,
    ServedScores,
    TextContext,
    masked,
    require,
)


class MultiLevelHeatmap(Localizer):
    """Heatmap of a phrase at the level of the highest pertinence.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR
    2019, section 4.3. The cells of all levels have the same boxes. A model with other attention,
    such as an ablation of table 3, is localized with its own: see ``for_model``.

    Args:
        text_context: "sentence" uses the words of a phrase in its sentence, as the paper does on
            Flickr30k; "phrase" always uses the phrase's own vector, as it does on ReferIt and
            Visual Genome.

    Raises:
        ValueError: ``text_context`` is unknown.

    Example:
        >>> from bifocal.image_encoders import MultiLevelEncoder
        >>> regions = RegionBatch(
        ...     torch.rand(1, 8, 3), torch.ones(1, 8, dtype=torch.bool), torch.rand(1, 8, 4)
        ... )
        >>> MultiLevelHeatmap()(
        ...     MultiLevelEncoder(3, 6, levels=2), regions, torch.rand(1, 6)
        ... ).scores.shape
        torch.Size([1, 4])
    """

    def __init__(self, text_context: TextContext = "sentence") -> None:
        if text_context not in ("phrase", "sentence"):
            raise ValueError(
                f"no text_context {text_context!r}; MultiLevelHeatmap has phrase and sentence"
            )
        self.text_context = text_context
        self.attention = AttentionOptions()

    def for_model(self, model: Any) -> "MultiLevelHeatmap":
        """Return this localizer with the attention of ``model``."""
        localizer = MultiLevelHeatmap(self.text_context)
        localizer.attention = getattr(model, "attention", self.attention)
        return localizer

    def encode(self, encoder: Any, regions: RegionBatch) -> RegionVectors:
        """Return the cells of all levels (N, L, R, d); see ``Localizer``."""
        require(encoder, "region_vectors", self, "MultiLevelEncoder")
        vectors: RegionVectors = encoder.region_vectors(regions)
        return vectors

    def score(
        self, vectors: RegionVectors, texts: Tensor, words: Sequence[Tensor | None] | None = None
    ) -> RegionScores:
        """Return the heatmap of each image's phrase; see ``Localizer``."""
        heatmaps = [
            sentence_heatmap(text, cells, self.attention)
            if phrase is None
            else phrase_heatmap(phrase, cells, self.attention)
            for text, phrase, cells in zip(
                texts, words or [None] * len(texts), vectors.vectors, strict=True
            )
        ]
        return masked(torch.stack(heatmaps), vectors)

    def served(self) -> ServedScores:
        options = self.attention
        arguments = {
            "softmax": options.softmax,
            "level": options.sentence_level,
            "unit": options.unit_sentence,
        }
        return ServedScores("attention", "cells", arguments)
