"""How pertinent texts are to images: attention to cells, level by level."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

ARRAYS = 8
"""Numbers that stand in memory, with the gradient, for each (text, cell) of a block."""


def pertinence(texts: Tensor, cells: Tensor, *, unit: bool, softmax: bool) -> Tensor:
    """Cosine of each text with what it attends to in each image, at each level.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, eq. (1)-(3) for
    words, (6a)-(6c) for sentences. The attended feature a = sum of H_n v_n is never made: <a, s> is the sum of
    H_n <v_n, s>, and |a|^2 is H G H' with the cells' Gram matrix G, which is smaller where d exceeds the cells.

    Args:
        texts: s, of unit norm.
        cells: v, of unit norm; zero where there is none.
        unit: divide a by its norm, as eq. (2) does and eq. (6b) does not.
        softmax: attention that sums to 1 over the cells of a level, in place of eq. (1): the ablation of table 3.

    Shape:
        texts (K, d), cells (N, L, R, d) -> (N, K, L)
    """
    similarity = texts @ cells.transpose(2, 3)  # (N, L, K, R)
    if softmax:
        absent = ~cells.any(dim=3, keepdim=True).transpose(2, 3)
        heatmap = similarity.masked_fill(absent, torch.finfo(similarity.dtype).min).softmax(dim=3)
    else:
        heatmap = similarity.relu()
    found = (heatmap * similarity).sum(dim=3)
    if unit:
        squared = ((heatmap @ (cells @ cells.transpose(2, 3))) * heatmap).sum(dim=3)
        # A text that attends to nothing has no direction, and pertinence 0.
        found = found / squared.clamp_min(torch.finfo(squared.dtype).tiny ** 0.5).sqrt()
    return found.transpose(1, 2)


def best_pertinence(
    texts: Tensor, cells: Tensor, *, unit: bool, softmax: bool, level: int | None, memory: int
) -> Tensor:
    """Pertinence at the best level, eq. (4) and (6d), or at one level, in blocks of bounded memory.

    With more than one block, what the gradient needs is computed a second time.

    Args:
        level: the only one, in place of the best.
        memory: MiB that a block's numbers take, with its gradient, beside texts, cells and their Gram matrices.

    Shape:
        texts (K, d), cells (N, L, R, d) -> (N, K)
    """
    if level is not None:
        cells = cells[:, level : level + 1]

    def block(some: Tensor, images: Tensor) -> Tensor:
        return pertinence(some, images, unit=unit, softmax=softmax).amax(dim=2)

    per_pair = ARRAYS * cells.shape[1] * cells.shape[2] * cells.element_size()
    rows, columns = _sizes(len(cells), len(texts), max(1, (memory << 20) // max(1, per_pair)))
    if rows >= len(cells) and columns >= len(texts):
        return block(texts, cells)
    again = torch.is_grad_enabled() and (texts.requires_grad or cells.requires_grad)

    def over_texts(images: Tensor) -> Iterator[Tensor]:
        for some in texts.split(columns):
            yield checkpoint(block, some, images, use_reentrant=False) if again else block(some, images)

    return torch.cat([torch.cat(list(over_texts(images)), dim=1) for images in cells.split(rows)])


def _sizes(images: int, texts: int, pairs: int) -> tuple[int, int]:
    """Images and texts of a block of at most ``pairs`` pairs: all texts, if it holds those of one image."""
    columns = max(1, min(texts, pairs))
    return max(1, min(images, pairs // columns)), columns


def sentence_from_words(pertinences: Tensor, present: Tensor, sharpness: float) -> Tensor:
    """R_w of eq. (5): log((sum over the words of exp(gamma_1 R_t)) ^ (1 / gamma_1)).

    Args:
        pertinences: R_t of all words of the captions, one caption after the other.
        present: where a caption has a word; every caption has one.
        sharpness: gamma_1.

    Shape:
        pertinences (N, K), present (M, T) bool with K true -> (N, M)
    """
    padded = pertinences.new_full((len(pertinences), *present.shape), -torch.inf)
    padded[:, present] = pertinences
    return (sharpness * padded).logsumexp(dim=2) / sharpness
