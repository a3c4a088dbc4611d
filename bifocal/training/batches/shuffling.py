"""Random order of captions, grouped by image."""

import torch
from torch import Generator, Tensor


def shuffle_within_images(image_of_caption: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return the rows of the captions sorted by image, in random order within an image, and their index there.

    ``image_of_caption`` is (M,) int64, and so are both results.

    Example:
        >>> rows, index = shuffle_within_images(torch.tensor([1, 0, 1]), Generator().manual_seed(0))
        >>> rows.tolist()[0], index.tolist()
        (1, [0, 0, 1])
    """
    order = torch.randperm(len(image_of_caption), generator=generator)
    order = order[image_of_caption[order].argsort(stable=True)]
    counts = image_of_caption.bincount()
    index = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return order, index
