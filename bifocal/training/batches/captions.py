"""Batches of captions with their images: every caption, or captions of distinct images."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bifocal.registry import check_range
from bifocal.training.batches.base import (
    Batches,
    PreparedBatches,
    Sampler,
    epoch_generator,
    shuffle_within_images,
)
from bifocal.training.inputs import TrainingInputs


class CaptionSampler(Batches):
    """Batches of rows of captions in the split "train"."""

    def prepare(
        self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int
    ) -> PreparedBatches:
        pairs = inputs.captions("train")
        return PreparedBatches(pairs, self.sampler(pairs.image_of_caption, seed))

    @abstractmethod
    def sampler(self, image_of_caption: Tensor, seed: int) -> Sampler:
        """Return the sampler of captions; ``image_of_caption`` (M,) int64 is the row of each
        caption's image."""


@dataclass(frozen=True)
class CaptionBatches(CaptionSampler):
    """Every caption once per epoch, in random order, with its image.

    Args:
        batch_size: captions per batch; each image is encoded once per batch.
        captions_per_image: captions of an image that stay together in a batch, as positives; 1 as
            in the papers.
        extra_captions_per_image: captions added to a batch for each of its images, from those not
            drawn yet. Wang, Li, Lazebnik, CVPR 2016, section 2.2, use 1: the structure of captions
            needs two captions of an image.

    Example:
        >>> sampler = CaptionBatches(batch_size=2).sampler(torch.tensor([0, 0, 1, 1]), seed=1)
        >>> [len(rows) for rows in sampler(0)]
        [2, 2]
    """

    batch_size: int = 160
    captions_per_image: int = 1
    extra_captions_per_image: int = 0

    def __post_init__(self) -> None:
        check_range(
            "[1, inf)", batch_size=self.batch_size, captions_per_image=self.captions_per_image
        )
        check_range("[0, inf)", extra_captions_per_image=self.extra_captions_per_image)
        if self.captions_per_image > self.batch_size:
            raise ValueError(
                f"captions_per_image is {self.captions_per_image}, but a batch has "
                f"{self.batch_size} captions: lower it, or raise batch_size"
            )

    def sampler(self, image_of_caption: Tensor, seed: int) -> Sampler:

        def sample(epoch: int) -> list[Tensor]:
            batches = caption_batches(
                image_of_caption, self.batch_size, self.captions_per_image, seed, epoch
            )
            extra = self.extra_captions_per_image
            return (
                append_captions(image_of_caption, batches, extra, seed, epoch) if extra else batches
            )

        return sample


def caption_batches(
    image_of_caption: Tensor, batch_size: int, captions_per_image: int, seed: int, epoch: int
) -> list[Tensor]:
    """Return every caption row once, in the random order of an epoch, in batches of nearly equal
    size.

    The captions of an image are divided at random into groups of ``captions_per_image``; a group
    stays in one batch.
    """
    generator = epoch_generator(seed, epoch)
    order, index = shuffle_within_images(image_of_caption, generator)
    groups, group = torch.stack([image_of_caption[order], index // captions_per_image]).unique(
        dim=1, return_inverse=True
    )
    count = groups.shape[1]
    shuffled = torch.randperm(count, generator=generator)[group]
    batches = -(-len(order) // batch_size)
    batch = shuffled * batches // count
    rows = order[shuffled.argsort(stable=True)]
    return list(rows.split(batch.bincount(minlength=batches).tolist()))


def append_captions(
    image_of_caption: Tensor,
    batches: Sequence[Tensor],
    captions_per_image: int,
    seed: int,
    epoch: int,
) -> list[Tensor]:
    """Return each batch with ``captions_per_image`` more captions of each of its images, after the
    given rows."""
    # The same seed would repeat the draws of the batches themselves.
    generator = epoch_generator(seed + 1, epoch)
    larger = []
    for rows in batches:
        in_batch = image_of_caption.new_zeros(int(image_of_caption.max()) + 1, dtype=torch.bool)
        in_batch[image_of_caption[rows]] = True
        available = in_batch[image_of_caption]
        available[rows] = False
        (candidates,) = available.nonzero(as_tuple=True)
        if not len(candidates):
            larger.append(rows)
            continue
        order, index = shuffle_within_images(image_of_caption[candidates], generator)
        larger.append(torch.cat([rows, candidates[order[index < captions_per_image]]]))
    return larger


@dataclass(frozen=True)
class DistinctImageBatches(CaptionSampler):
    """Captions of distinct images, every batch of exactly ``batch_size``.

    For a loss with a sorter of one length, and for a loss that takes every other caption as a
    negative. Captions that do not fill a batch are left out of the epoch; they differ from epoch to
    epoch.

    Args:
        batch_size: captions per batch, and as many images.

    Example:
        >>> sampler = DistinctImageBatches(batch_size=2).sampler(
        ...     torch.tensor([0, 0, 1, 1, 2]), seed=1
        ... )
        >>> [len(rows) for rows in sampler(0)]
        [2, 2]
    """

    batch_size: int = 160

    def __post_init__(self) -> None:
        check_range("[1, inf)", batch_size=self.batch_size)

    def sampler(self, image_of_caption: Tensor, seed: int) -> Sampler:
        images = len(image_of_caption.unique())
        if images < self.batch_size:
            raise ValueError(
                f"batch_size is {self.batch_size}, but there are only {images} images: lower it"
            )
        return lambda epoch: distinct_batches(image_of_caption, self.batch_size, seed, epoch)


def distinct_batches(
    image_of_caption: Tensor, batch_size: int, seed: int, epoch: int
) -> list[Tensor]:
    """Return batches of exactly ``batch_size`` captions with distinct images, in an epoch's random
    order."""
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
