"""Pertinence of texts to images: attention to the cells of each level."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

ARRAYS = 8
"""Numbers in memory per (text, cell) pair of a block, including the backward pass."""


def pertinence(texts: Tensor, cells: Tensor, *, unit: bool, softmax: bool) -> Tensor:
    """Cosine of each text (K, d) with its attended feature, for each image and level of cells (N, L, R, d).

    Akbari et al., CVPR 2019, eq. (1)-(3) for words, (6a)-(6c) for sentences. The attended feature a = sum of H_n v_n is
    not computed, to save memory: <a, s> is the sum of H_n <v_n, s>, and |a|^2 is H G H' with the cells' Gram matrix G.
    ``unit`` divides a by its norm; ``softmax`` replaces eq. (1) by a softmax over the cells of a level.
    """
    similarity = texts @ cells.transpose(2, 3)  # (N, L, K, R)
    if softmax:
        absent = ~cells.any(dim=3, keepdim=True).transpose(2, 3)
        heatmap = similarity.masked_fill(absent, torch.finfo(similarity.dtype).min).softmax(dim=3)
    else:
        heatmap = similarity.relu()
    product = (heatmap * similarity).sum(dim=3)
    if unit:
        squared = ((heatmap @ (cells @ cells.transpose(2, 3))) * heatmap).sum(dim=3)
        # Without attention, a = 0 and the pertinence is 0; the clamp keeps its gradient finite.
        product = product / squared.clamp_min(torch.finfo(squared.dtype).tiny ** 0.5).sqrt()
    return product.transpose(1, 2)


def best_pertinence(
    texts: Tensor, cells: Tensor, *, unit: bool, softmax: bool, level: int | None, memory: int
) -> Tensor:
    """Pertinence (N, K) at the best level, eq. (4) and (6d), or at one ``level``, in blocks of ``memory`` MiB.

    With more than one block, the backward pass computes the activations again.
    """
    if level is not None:
        cells = cells[:, level : level + 1]

    def block(block_texts: Tensor, images: Tensor) -> Tensor:
        return pertinence(block_texts, images, unit=unit, softmax=softmax).amax(dim=2)

    per_pair = ARRAYS * cells.shape[1] * cells.shape[2] * cells.element_size()
    rows, columns = _sizes(len(cells), len(texts), max(1, (memory << 20) // max(1, per_pair)))
    if rows >= len(cells) and columns >= len(texts):
        return block(texts, cells)
    recompute = torch.is_grad_enabled() and (texts.requires_grad or cells.requires_grad)

    def over_texts(images: Tensor) -> Iterator[Tensor]:
        for part in texts.split(columns):
            yield checkpoint(block, part, images, use_reentrant=False) if recompute else block(part, images)

    return torch.cat([torch.cat(list(over_texts(images)), dim=1) for images in cells.split(rows)])


def _sizes(images: int, texts: int, pairs: int) -> tuple[int, int]:
    """Return the numbers of images and texts per block of at most ``pairs`` pairs; images are split first."""
    columns = max(1, min(texts, pairs))
    return max(1, min(images, pairs // columns)), columns


def sentence_from_words(pertinences: Tensor, present: Tensor, sharpness: float) -> Tensor:
    """Return R_w (N, M) of eq. (5): log((sum over the words of exp(gamma_1 R_t)) ^ (1 / gamma_1)).

    ``pertinences`` (N, K) are of the K words that ``present`` (M, T) marks; ``sharpness`` is gamma_1.
    """
    padded = pertinences.new_full((len(pertinences), *present.shape), -torch.inf)
    padded[:, present] = pertinences
    return (sharpness * padded).logsumexp(dim=2) / sharpness
