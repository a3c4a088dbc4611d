"""Attention of words and sentences to the cells of several levels: Akbari et al., CVPR 2019, eq.
(1)-(6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

EPSILON = 1e-12
"""Sums of weights below this value count as zero."""


@dataclass(frozen=True)
class AttentionOptions:
    """How words and sentences attend to cells; other values than the defaults are ablations of
    table 3.

    ``softmax`` replaces eq. (1); a level of None is the best one; ``unit_sentence`` adds a norm to
    eq. (6b).
    """

    softmax: bool = False
    word_level: int | None = None
    sentence_level: int | None = None
    unit_sentence: bool = False


class Attention(NamedTuple):
    """Heatmaps (T, R) of T texts at their best or given level (T,), and their pertinence (T,), R_t
    of eq. (4)."""

    heatmaps: Tensor
    pertinence: Tensor
    level: Tensor


def attend(
    texts: Tensor,
    cells: Tensor,
    *,
    unit: bool = True,
    softmax: bool = False,
    level: int | None = None,
) -> Attention:
    """Return the attention of T texts, words or sentences, to one image.

    Args:
        texts: s_t, of unit norm.
        cells: v_{n,l}, of unit norm, for each of L levels; zero for padding.
        unit: divide the attended feature by its norm, as eq. (2) does for words; eq. (6b) does not
            for a sentence.
        softmax: use a softmax over the cells of a level instead of eq. (1), an ablation.
        level: level to use, an ablation; None for the best.

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
            f"texts {tuple(texts.shape)} and cells {tuple(cells.shape)} differ: expected (T, "
            "d) and (levels, R, d)"
        )
    similarity = torch.einsum("td,lrd->tlr", texts, cells)
    heatmaps = similarity.relu()
    if softmax:
        absent = ~cells.any(dim=2)
        heatmaps = similarity.masked_fill(absent, torch.finfo(similarity.dtype).min).softmax(dim=2)
    attended = torch.einsum("tlr,lrd->tld", heatmaps, cells)
    pertinence = torch.einsum("tld,td->tl", normalize(attended, dim=2) if unit else attended, texts)
    if level is None:
        best, chosen = pertinence.max(dim=1)
    else:
        best, chosen = pertinence[:, level], torch.full((len(texts),), level, device=texts.device)
    return Attention(heatmaps[torch.arange(len(texts)), chosen], best, chosen)


def phrase_heatmap(
    words: Tensor, cells: Tensor, options: AttentionOptions = AttentionOptions()
) -> Tensor:
    """Return the heatmap of a phrase inside a sentence: the mean over its words, weighted by their
    pertinence.

    Section 4.3 of the paper.

    Args:
        words: vectors of the phrase's words, in the context of the whole sentence.
        options: of the model that gave the vectors.

    Shape:
        words (T, d), cells (L, R, d) -> (R,)

    Raises:
        ValueError: there is no word.
    """
    if not len(words):
        raise ValueError("the phrase has no word: find_phrase gives its position in the sentence")
    attention = attend(words, cells, softmax=options.softmax, level=options.word_level)
    # With a softmax, pertinences may be negative, which no weight can be.
    weights = attention.pertinence.relu()
    total = weights.sum()
    if total < EPSILON:
        return attention.heatmaps.mean(dim=0)
    return (weights.unsqueeze(1) * attention.heatmaps).sum(dim=0) / total


def sentence_heatmap(
    sentence: Tensor, cells: Tensor, options: AttentionOptions = AttentionOptions()
) -> Tensor:
    """Return the heatmap of a phrase without a sentence: eq. (6a) at the best level.

    This is how the paper localizes on ReferIt and Visual Genome.

    Args:
        options: of the model that gave the vectors.

    Shape:
        sentence (d,), cells (L, R, d) -> (R,)
    """
    attention = attend(
        sentence.unsqueeze(0),
        cells,
        unit=options.unit_sentence,
        softmax=options.softmax,
        level=options.sentence_level,
    )
    return attention.heatmaps[0]


def find_phrase(sentence: Sequence[str], phrase: Sequence[str], number: int = 0) -> slice | None:
    """Return the position of ``phrase`` in ``sentence``, both as tokens; None if it does not occur.

    Args:
        number: which occurrence, from 0; the last one if there are fewer.

    Example:
        >>> find_phrase("a man and a man".split(), ["a", "man"], number=1)
        slice(3, 5, None)
    """
    size = len(phrase)
    starts = [
        start
        for start in range(len(sentence) - size + 1)
        if list(sentence[start : start + size]) == list(phrase)
    ]
    if not size or not starts:
        return None
    first = starts[min(number, len(starts) - 1)]
    return slice(first, first + size)
