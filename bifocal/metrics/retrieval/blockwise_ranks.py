"""Ranks of both directions in one pass over blocks of scores, without sorting and with one block in
memory.

Blocks with correct pairs come first and set the threshold of every query; the other blocks are
counted against it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bifocal.metrics.retrieval.ranks import Ranks, rerank_factor

IMAGES, CAPTIONS = 256, 1280
"""Images and captions per block: its scores, 1.3 MB, stay in a core's cache while they are
counted."""

BlockScores = Callable[[Tensor, Tensor], Tensor]
"""Rows (n,) of images and rows (m,) of captions, both int64 -> their scores (n, m)."""
Biases = tuple[Tensor, Tensor]
"""Biases (N,) of the images, for image retrieval, and (M,) of the captions, for caption
retrieval."""


@dataclass(frozen=True)
class _Block:
    """Successive images and all of their captions."""

    images: Tensor
    captions: Tensor


class _Counts:
    """Threshold of each query, and the number of candidates above and equal to it."""

    def __init__(self, queries: int, device: torch.device) -> None:
        self.best = torch.full((queries,), -torch.inf, dtype=torch.float64, device=device)
        self.better = torch.zeros(queries, dtype=torch.int64, device=device)
        self.equal = self.better.clone()
        self.correct = self.better.clone()

    def count(self, scores: Tensor, queries: Tensor, dim: int, buffer: Tensor) -> None:
        """Add the comparisons of a block whose candidates lie along ``dim``."""
        best = self.best[queries].to(scores.dtype).unsqueeze(dim)
        # Ones and zeros as float32 are written and summed several times faster than booleans, and
        # exact below 2^24.
        compared = buffer[: scores.numel()].view_as(scores)
        self.better[queries] += torch.gt(scores, best, out=compared).sum(dim).long()
        self.equal[queries] += torch.eq(scores, best, out=compared).sum(dim).long()

    def ranks(self) -> Ranks:
        return Ranks(self.better.cpu(), (self.equal - self.correct).cpu(), self.correct.cpu())


def score_ranks(
    scores: BlockScores,
    image_of_caption: Tensor,
    *,
    images: int,
    rerank: bool = False,
    biases: Biases | None = None,
) -> tuple[Ranks, Ranks]:
    """Return the ranks of caption retrieval (one query per image) and of image retrieval (one per
    caption).

    Args:
        scores: returns any block of the matrix of scores; it is called once per block (twice with
            ``rerank``). A pair must get the same score in every block, or ties are missed.
        image_of_caption: row of each caption's image.
        images: number of images.
        rerank: normalize the scores by thesis eq. (3.12)-(3.13).
        biases: added to the scores of each candidate, see ``bifocal.hubness``.

    Shape:
        image_of_caption (M,) int64.

    Raises:
        ValueError: a score is NaN, an image has no caption, or ``image_of_caption`` exceeds
            ``images``.
    """
    blocks = list(_blocks(image_of_caption, images))
    factors = _factors(scores, blocks, images, len(image_of_caption)) if rerank else None
    caption_counts, image_counts = (
        _Counts(size, image_of_caption.device) for size in (images, len(image_of_caption))
    )
    buffer = torch.empty(0, device=image_of_caption.device)

    def count(rows: Tensor, columns: Tensor, block: Tensor | None = None) -> None:
        nonlocal buffer
        block = _validated(scores(rows, columns)) if block is None else block
        if buffer.numel() < block.numel():
            buffer = torch.empty(block.numel(), device=block.device)
        for_captions, for_images = _normalized(block, rows, columns, factors, biases)
        caption_counts.count(for_captions, rows, 1, buffer)
        image_counts.count(for_images, columns, 0, buffer)

    for diagonal in blocks:
        block = _validated(scores(diagonal.images, diagonal.captions))
        correct = diagonal.images.unsqueeze(1) == image_of_caption[diagonal.captions]
        for_captions, for_images = _normalized(
            block, diagonal.images, diagonal.captions, factors, biases
        )
        best = for_captions.masked_fill(~correct, -torch.inf).amax(dim=1, keepdim=True)
        caption_counts.best[diagonal.images] = best.squeeze(1).double()
        caption_counts.correct[diagonal.images] = ((for_captions == best) & correct).sum(dim=1)
        image_counts.best[diagonal.captions] = (
            for_images.masked_fill(~correct, -torch.inf).amax(dim=0).double()
        )
        image_counts.correct[diagonal.captions] = 1
        count(diagonal.images, diagonal.captions, block)
    for columns, rows in _off_diagonal(blocks):
        count(rows, columns)
    return caption_counts.ranks(), image_counts.ranks()


def _blocks(image_of_caption: Tensor, images: int) -> Iterator[_Block]:
    """Yield every image and every caption in exactly one block."""
    if (
        len(image_of_caption)
        and not 0 <= int(image_of_caption.min()) <= int(image_of_caption.max()) < images
    ):
        raise ValueError(
            f"image_of_caption goes from {int(image_of_caption.min())} to "
            f"{int(image_of_caption.max())}, expected rows of {images} images"
        )
    counts = image_of_caption.bincount(minlength=images)
    if not images or (counts == 0).any():
        raise ValueError(
            f"{int((counts == 0).sum())} of {images} images have no caption and thus no "
            "correct answer: give them one, or leave them out"
        )
    captions, ends = image_of_caption.argsort(stable=True), counts.cumsum(0).tolist()
    start = first = 0
    for image in range(images):
        full = image + 1 < images and ends[image + 1] - first > CAPTIONS
        if image + 1 == images or full or image + 1 - start == IMAGES:
            rows = torch.arange(start, image + 1, device=image_of_caption.device)
            yield _Block(rows, captions[first : ends[image]])
            start, first = image + 1, ends[image]


def _off_diagonal(blocks: list[_Block]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield captions and images of all pairs outside the blocks; successive pairs share their
    captions."""
    for block in blocks:
        # One image may have more captions than a block should hold.
        for captions in block.captions.split(CAPTIONS):
            for other in blocks:
                if other is not block:
                    yield captions, other.images


def _factors(
    scores: BlockScores, blocks: list[_Block], images: int, captions: int
) -> tuple[Tensor, Tensor]:
    """Return the re-ranking factors of the images (N, 1) and of the captions (M,)."""
    device = blocks[0].images.device
    best_of_image, best_of_caption = (
        torch.full((size,), -torch.inf, dtype=torch.float64, device=device)
        for size in (images, captions)
    )
    for columns, rows in [
        *((block.captions, block.images) for block in blocks),
        *_off_diagonal(blocks),
    ]:
        values = _validated(scores(rows, columns)).double()
        best_of_image[rows] = torch.maximum(best_of_image[rows], values.amax(dim=1))
        best_of_caption[columns] = torch.maximum(best_of_caption[columns], values.amax(dim=0))
    return rerank_factor(best_of_image).unsqueeze(1), rerank_factor(best_of_caption)


def _normalized(
    block: Tensor,
    rows: Tensor,
    columns: Tensor,
    factors: tuple[Tensor, Tensor] | None,
    biases: Biases | None,
) -> tuple[Tensor, Tensor]:
    """Return the scores for caption retrieval and the scores for image retrieval."""
    if biases is not None:
        of_images, of_captions = biases[0][rows].unsqueeze(1), biases[1][columns]
        return block + of_captions, block + of_images
    if factors is None:
        return block, block
    of_images, of_captions = (
        factor.to(block.dtype) for factor in (factors[0][rows], factors[1][columns])
    )
    return block * of_captions, block * of_images


def _validated(block: Tensor) -> Tensor:
    # The sum is NaN if an entry is, and costs a fiftieth of testing every entry. inf - inf is NaN
    # too but valid, so test the entries if the sum is NaN.
    if block.sum().isnan() and block.isnan().any():
        raise ValueError(f"{int(block.isnan().sum())} of {block.numel()} scores of a block are NaN")
    return block
