"""Batches of captions of distinct images."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bifocal.training.batches.base import (
    Batches,
    PreparedBatches,
    Sampler,
    check_positive,
    epoch_generator,
    shuffle_within_images,
)
from bifocal.training.inputs import TrainingInputs


@dataclass(frozen=True)
class DistinctImageBatches(Batches):
    """Captions of distinct images, every batch of exactly ``batch_size``.

    For a loss with a sorter of one length, and for a loss that takes every other caption as a negative. Captions that
    do not fill a batch are left out of the epoch; they differ from epoch to epoch.

    Args:
        batch_size: captions per batch, and as many images.

    Example:
        >>> sampler = DistinctImageBatches(batch_size=2).sampler(torch.tensor([0, 0, 1, 1, 2]), seed=1)
        >>> [len(rows) for rows in sampler(0)]
        [2, 2]
    """

    batch_size: int = 160

    def __post_init__(self) -> None:
        check_positive(batch_size=self.batch_size)

    def prepare(self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int) -> PreparedBatches:
        pairs = inputs.captions("train")
        return PreparedBatches(pairs, self.sampler(pairs.image_of_caption, seed))

    def sampler(self, image_of_caption: Tensor, seed: int) -> Sampler:
        """Return the sampler of captions; ``image_of_caption`` (M,) int64 is the row of each caption's image."""
        images = len(image_of_caption.unique())
        if images < self.batch_size:
            raise ValueError(f"batch_size is {self.batch_size}, but there are only {images} images: lower it")
        return lambda epoch: distinct_batches(image_of_caption, self.batch_size, seed, epoch)


def distinct_batches(image_of_caption: Tensor, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """Return batches of exactly ``batch_size`` captions with distinct images, in an epoch's random order."""
    generator = epoch_generator(seed, epoch)
    order, index = shuffle_within_images(image_of_caption, generator)
    batches: list[Tensor] = []
    rest = order[:0]
    # Each round draws one caption of every image that has captions left.
    for number in range(int(index.max()) + 1):
        captions = order[index == number]
        captions = captions[torch.randperm(len(captions), generator=generator)]
        # Fill the incomplete batch of the last round with images that it does not hold.
        is_new = ~torch.isin(image_of_caption[captions], image_of_caption[rest])
        missing = batch_size - len(rest)
        if int(is_new.sum()) < missing:
            break
        filling = is_new & (is_new.cumsum(0) <= missing)
        rows = torch.cat([rest, captions[filling], captions[~filling]])
        complete = len(rows) // batch_size * batch_size
        batches += rows[:complete].split(batch_size)
        rest = rows[complete:]
    return batches
