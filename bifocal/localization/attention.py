"""Attention of words and sentences to the cells of several levels, and the heatmaps of phrases.

Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, eq. (1)-(6).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

EPSILON = 1e-12
"""Sums of weights below this value count as zero."""


class Attention(NamedTuple):
    """Attention of T texts to one image, each at its best level.

    Attributes:
        heatmaps: (T, R), eq. (1) at the level of the highest pertinence.
        pertinence: (T,), R_t of eq. (4).
        level: (T,) int64, the level of the highest pertinence.
    """

    heatmaps: Tensor
    pertinence: Tensor
    level: Tensor


def attend(texts: Tensor, cells: Tensor, *, unit: bool = True) -> Attention:
    """Return the attention of T texts, words or sentences, to one image.

    Args:
        texts: s_t, of unit norm.
        cells: v_{n,l}, of unit norm, for each of L levels.
        unit: divide the attended feature by its norm, as eq. (2) does for words; eq. (6b) does not for a sentence.

    Shape:
        texts (T, d), cells (L, R, d)

    Raises:
        ValueError: the dimensions differ.

    Example:
        >>> attend(torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])).heatmaps
        tensor([[0., 1.]])
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


def phrase_heatmap(words: Tensor, cells: Tensor) -> Tensor:
    """Return the heatmap of a phrase inside a sentence: the mean over its words, weighted by their pertinence.

    Section 4.3 of the paper.

    Args:
        words: vectors of the phrase's words, in the context of the whole sentence.

    Shape:
        words (T, d), cells (L, R, d) -> (R,)

    Raises:
        ValueError: there is no word.
    """
    if not len(words):
        raise ValueError("the phrase has no word: find_phrase gives its position in the sentence")
    attention = attend(words, cells)
    total = attention.pertinence.sum()
    if total < EPSILON:
        return attention.heatmaps.mean(dim=0)
    return (attention.pertinence.unsqueeze(1) * attention.heatmaps).sum(dim=0) / total


def sentence_heatmap(sentence: Tensor, cells: Tensor) -> Tensor:
    """Return the heatmap of a phrase without a sentence: eq. (6a) at the best level.

    This is how the paper localizes on ReferIt and Visual Genome.

    Shape:
        sentence (d,), cells (L, R, d) -> (R,)
    """
    return attend(sentence.unsqueeze(0), cells, unit=False).heatmaps[0]
