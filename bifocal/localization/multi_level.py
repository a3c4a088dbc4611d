"""Multi-level heatmaps: of a phrase inside a sentence from its words, of a phrase alone from its own vector.

Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, equations (1)-(6).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.image_encoders import MultiLevelEncoder
from bifocal.localization.base import RegionScores, RegionVectors, as_numbers

NO_PART = 1e-12
"""Below it a sum of weights is zero."""


class Attention(NamedTuple):
    """What words or a sentence see in one image, at the level that fits them best.

    Attributes:
        heatmaps: (T, R), eq. (1) at the level of the best pertinence.
        pertinence: (T,), R_t of eq. (4).
        level: (T,) int64, that level.
    """

    heatmaps: Tensor
    pertinence: Tensor
    level: Tensor


class MultiLevelHeatmap:
    """The heatmap of a phrase: of its words where it stands in a sentence, of its own vector where it stands alone.

    The cells of all levels lie in the same places.

    Args:
        in_sentences: take the words where a phrase stands in a sentence, as the paper does on Flickr30k; if False, each
            phrase's own vector, as it does on ReferIt and Visual Genome.
    """

    def __init__(self, in_sentences: bool = True) -> None:
        self.in_sentences = in_sentences

    def see(self, encoder: nn.Module, regions: RegionBatch) -> RegionVectors:
        """See ``bifocal.localization.base.Localizer``; vectors (N, L, R, d)."""
        if not isinstance(encoder, MultiLevelEncoder):
            raise ValueError(
                f"MultiLevelHeatmap needs a MultiLevelEncoder, and the model has a {type(encoder).__name__}"
            )
        cells = encoder(as_numbers(encoder, regions.features), regions.mask)
        places = cells.shape[2]
        return RegionVectors(cells, regions.mask[:, :places], regions.boxes[:, :places])

    def heat(self, seen: RegionVectors, texts: Tensor, words: Sequence[Tensor | None] | None = None) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``.

        Args:
            words: vectors (t, d) of each phrase's words in the context of their sentence; None for a phrase alone.
        """
        scores = torch.stack(
            [
                sentence_heatmap(text, cells) if spoken is None else phrase_heatmap(spoken, cells)
                for text, spoken, cells in zip(texts, words or [None] * len(texts), seen.vectors, strict=True)
            ]
        )
        return RegionScores(scores.masked_fill(~seen.mask, -torch.inf), seen.boxes)

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``; phrases alone."""
        return self.heat(self.see(encoder, regions), texts)


def attend(texts: Tensor, cells: Tensor, *, unit: bool = True) -> Attention:
    """Attention of T texts, words or sentences, to one image.

    Args:
        texts: s_t, of unit norm.
        cells: v_{n,l}, of unit norm, for each of L levels.
        unit: divide the attended feature by its norm, as eq. (2) does for words; eq. (6b) does not for a sentence.

    Shape:
        texts (T, d), cells (L, R, d)

    Raises:
        ValueError: the dimensions differ.
    """
    if texts.ndim != 2 or cells.ndim != 3 or texts.shape[1] != cells.shape[2]:
        raise ValueError(
            f"texts {tuple(texts.shape)} and cells {tuple(cells.shape)} differ: expected (T, d) and (levels, R, d)"
        )
    heatmaps = torch.einsum("td,lrd->tlr", texts, cells).relu()
    attended = torch.einsum("tlr,lrd->tld", heatmaps, cells)
    pertinence = torch.einsum("tld,td->tl", normalize(attended, dim=2) if unit else attended, texts)
    best, level = pertinence.max(dim=1)
    return Attention(heatmaps[torch.arange(len(texts)), level], best, level)


def find_phrase(sentence: Sequence[str], phrase: Sequence[str], number: int = 0) -> slice | None:
    """Where ``phrase`` stands in ``sentence``, both as tokens: the occurrence ``number``, or the last before it.

    >>> find_phrase("a man and a man".split(), ["a", "man"], number=1)
    slice(3, 5, None)
    """
    size = len(phrase)
    starts = [
        place for place in range(len(sentence) - size + 1) if list(sentence[place : place + size]) == list(phrase)
    ]
    if not size or not starts:
        return None
    first = starts[min(number, len(starts) - 1)]
    return slice(first, first + size)


def phrase_heatmap(words: Tensor, cells: Tensor) -> Tensor:
    """Of a phrase inside a sentence: its words' heatmaps, weighted by how pertinent each word is; section 4.3.

    Args:
        words: vectors, in the context of the whole sentence, of the phrase's words alone.

    Shape:
        words (T, d), cells (L, R, d) -> (R,)

    Raises:
        ValueError: there is no word.
    """
    if not len(words):
        raise ValueError("the phrase has no word: where does it stand in its sentence?")
    seen = attend(words, cells)
    total = seen.pertinence.sum()
    if total < NO_PART:
        return seen.heatmaps.mean(dim=0)
    return (seen.pertinence.unsqueeze(1) * seen.heatmaps).sum(dim=0) / total


def sentence_heatmap(sentence: Tensor, cells: Tensor) -> Tensor:
    """Of a phrase alone, as in ReferIt and Visual Genome: its sentence-level heatmap, eq. (6a), at the best level.

    Shape:
        sentence (d,), cells (L, R, d) -> (R,)
    """
    return attend(sentence.unsqueeze(0), cells, unit=False).heatmaps[0]
