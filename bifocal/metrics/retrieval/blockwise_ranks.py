"""Ranks of both directions in one pass over blocks of scores: each score is made once and compared in the cache.

A query's rank is the number of candidates that score higher than its best correct one. So the blocks that hold the
correct pairs come first and give every query its threshold; the others are then counted against it. Nothing is
sorted, and of the N x M scores only one block stands in memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bifocal.metrics.retrieval.ranks import Ranks
from bifocal.metrics.retrieval.reranking import rerank_factor

IMAGES, CAPTIONS = 256, 1280
"""Images and captions of a block: its scores, 1.3 MB, stay in a core's cache while they are counted."""

BlockScores = Callable[[Tensor, Tensor], Tensor]
"""Rows (n,) of images and rows (m,) of captions, both int64 -> their scores (n, m)."""


@dataclass(frozen=True)
class _Block:
    """Images that follow each other, and all their captions."""

    images: Tensor
    captions: Tensor


class _Counts:
    """Of each query: the threshold, and how many candidates were above it and equal to it."""

    def __init__(self, queries: int, device: torch.device) -> None:
        self.best = torch.full((queries,), -torch.inf, dtype=torch.float64, device=device)
        self.above = torch.zeros(queries, dtype=torch.int64, device=device)
        self.equal = self.above.clone()
        self.correct = self.above.clone()

    def count(self, scores: Tensor, queries: Tensor, dim: int, buffer: Tensor) -> None:
        """Compare a block, whose queries' candidates run along ``dim``."""
        best = self.best[queries].to(scores.dtype).unsqueeze(dim)
        # Ones and zeros as float32: written and summed several times faster than booleans, and exact below 2^24.
        compared = buffer[: scores.numel()].view_as(scores)
        self.above[queries] += torch.gt(scores, best, out=compared).sum(dim).long()
        self.equal[queries] += torch.eq(scores, best, out=compared).sum(dim).long()

    def ranks(self) -> Ranks:
        return Ranks(self.above.cpu(), (self.equal - self.correct).cpu(), self.correct.cpu())


def score_ranks(
    scores: BlockScores, image_of_caption: Tensor, *, images: int, rerank: bool = False
) -> tuple[Ranks, Ranks]:
    """Ranks of caption retrieval (one query per image) and of image retrieval (one per caption), of any model.

    Args:
        scores: gives any block of the matrix of scores; each is asked for once (twice with ``rerank``), and it must
            give a pair the same score whatever block it is in, as far as ties are to be seen.
        image_of_caption: row of each caption's image.
        images: how many there are.
        rerank: normalise the scores by thesis eq. (3.12)-(3.13).

    Shape:
        image_of_caption (M,) int64.

    Raises:
        ValueError: a score is NaN, an image has no caption, or a caption's image is not there.
    """
    blocks = list(_blocks(image_of_caption, images))
    factors = _factors(scores, blocks, images, len(image_of_caption)) if rerank else None
    by_captions, by_images = (_Counts(size, image_of_caption.device) for size in (images, len(image_of_caption)))
    buffer = torch.empty(0, device=image_of_caption.device)

    def count(rows: Tensor, columns: Tensor, block: Tensor | None = None) -> None:
        nonlocal buffer
        block = _checked(scores(rows, columns)) if block is None else block
        if buffer.numel() < block.numel():
            buffer = torch.empty(block.numel(), device=block.device)
        for_captions, for_images = _normalised(block, rows, columns, factors)
        by_captions.count(for_captions, rows, 1, buffer)
        by_images.count(for_images, columns, 0, buffer)

    for own in blocks:
        block = _checked(scores(own.images, own.captions))
        correct = own.images.unsqueeze(1) == image_of_caption[own.captions]
        for_captions, for_images = _normalised(block, own.images, own.captions, factors)
        best = for_captions.masked_fill(~correct, -torch.inf).amax(dim=1, keepdim=True)
        by_captions.best[own.images] = best.squeeze(1).double()
        by_captions.correct[own.images] = ((for_captions == best) & correct).sum(dim=1)
        by_images.best[own.captions] = for_images.masked_fill(~correct, -torch.inf).amax(dim=0).double()
        by_images.correct[own.captions] = 1
        count(own.images, own.captions, block)
    for columns, rows in _others(blocks):
        count(rows, columns)
    return by_captions.ranks(), by_images.ranks()


def _blocks(image_of_caption: Tensor, images: int) -> Iterator[_Block]:
    """Every image and every caption in exactly one block."""
    if len(image_of_caption) and not 0 <= int(image_of_caption.min()) <= int(image_of_caption.max()) < images:
        raise ValueError(
            f"image_of_caption goes from {int(image_of_caption.min())} to {int(image_of_caption.max())}, "
            f"expected rows of {images} images"
        )
    counts = image_of_caption.bincount(minlength=images)
    if not images or (counts == 0).any():
        raise ValueError(
            f"{int((counts == 0).sum())} of {images} images have no caption, so nothing is correct for them: "
            "give them one, or leave them out"
        )
    captions, ends = image_of_caption.argsort(stable=True), counts.cumsum(0).tolist()
    start = first = 0
    for image in range(images):
        full = image + 1 < images and ends[image + 1] - first > CAPTIONS
        if image + 1 == images or full or image + 1 - start == IMAGES:
            rows = torch.arange(start, image + 1, device=image_of_caption.device)
            yield _Block(rows, captions[first : ends[image]])
            start, first = image + 1, ends[image]


def _others(blocks: list[_Block]) -> Iterator[tuple[Tensor, Tensor]]:
    """Captions and images of all pairs that no block holds; the captions stay while the images go by."""
    for own in blocks:
        # One image may have more captions than a block is to hold.
        for captions in own.captions.split(CAPTIONS):
            for other in blocks:
                if other is not own:
                    yield captions, other.images


def _factors(scores: BlockScores, blocks: list[_Block], images: int, captions: int) -> tuple[Tensor, Tensor]:
    """What each image's and each caption's scores are multiplied by, (N, 1) and (M,)."""
    device = blocks[0].images.device
    best_of_image, best_of_caption = (
        torch.full((size,), -torch.inf, dtype=torch.float64, device=device) for size in (images, captions)
    )
    for columns, rows in [*((own.captions, own.images) for own in blocks), *_others(blocks)]:
        block = _checked(scores(rows, columns)).double()
        best_of_image[rows] = torch.maximum(best_of_image[rows], block.amax(dim=1))
        best_of_caption[columns] = torch.maximum(best_of_caption[columns], block.amax(dim=0))
    return rerank_factor(best_of_image).unsqueeze(1), rerank_factor(best_of_caption)


def _normalised(
    block: Tensor, rows: Tensor, columns: Tensor, factors: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The scores for caption retrieval and those for image retrieval."""
    if factors is None:
        return block, block
    of_images, of_captions = (factor.to(block.dtype) for factor in (factors[0][rows], factors[1][columns]))
    return block * of_captions, block * of_images


def _checked(block: Tensor) -> Tensor:
    # The sum is NaN if one is, and costs a fiftieth of looking at each; inf - inf, which is no fault, looks again.
    if block.sum().isnan() and block.isnan().any():
        raise ValueError(f"{int(block.isnan().sum())} of {block.numel()} scores of a block are NaN")
    return block
