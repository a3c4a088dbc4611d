"""Which captions share a batch."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor


def epoch_batches(
    image_of_caption: Tensor, batch_size: int, captions_per_image: int, seed: int, epoch: int
) -> list[Tensor]:
    """Every caption row once, in the random order of one epoch, in batches of nearly equal size.

    The captions of an image are dealt at random into groups of ``captions_per_image``, and a group stays in one
    batch; so a batch has up to that many positives for each of its images.

    Shape:
        image_of_caption (M,) int64 -> about M / batch_size tensors of rows.
    """
    generator = _generator(seed, epoch)
    order, place = shuffle_within_images(image_of_caption, generator)
    groups, group = torch.stack([image_of_caption[order], place // captions_per_image]).unique(
        dim=1, return_inverse=True
    )
    count = groups.shape[1]
    shuffled = torch.randperm(count, generator=generator)[group]
    batches = -(-len(order) // batch_size)
    batch = shuffled * batches // count
    rows = order[shuffled.argsort(stable=True)]
    return list(rows.split(batch.bincount(minlength=batches).tolist()))


def distinct_batches(image_of_caption: Tensor, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """Batches of exactly ``batch_size`` captions of as many different images, in the random order of one epoch.

    What a sorter that is made for one length needs, and a loss that takes every other caption for a negative. The
    captions that are left over at the end of an epoch, fewer than a batch where all images have as many captions, sit
    it out; they are others in every epoch.

    Shape:
        image_of_caption (M,) int64 -> at most M / batch_size tensors of rows.

    Raises:
        ValueError: there are fewer images than that.
    """
    images = len(image_of_caption.unique())
    if images < batch_size:
        raise ValueError(f"batch_size is {batch_size}, but there are only {images} different images for it: lower it")
    generator = _generator(seed, epoch)
    order, place = shuffle_within_images(image_of_caption, generator)
    batches: list[Tensor] = []
    left = order[:0]
    # Round by round, in each of which every image that still has a caption comes once.
    for number in range(int(place.max()) + 1):
        captions = order[place == number]
        captions = captions[torch.randperm(len(captions), generator=generator)]
        other = ~torch.isin(image_of_caption[captions], image_of_caption[left])
        missing = batch_size - len(left)
        if int(other.sum()) < missing:
            break
        filling = other & (other.cumsum(0) <= missing)
        rows = torch.cat([left, captions[filling], captions[~filling]])
        whole = len(rows) // batch_size * batch_size
        batches += rows[:whole].split(batch_size)
        left = rows[whole:]
    return batches


def append_captions(
    image_of_caption: Tensor, batches: Sequence[Tensor], added: int, seed: int, epoch: int
) -> list[Tensor]:
    """Each batch with ``added`` more captions of each of its images, drawn from those that it does not have yet.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 2.2: pairs that
    are drawn at random seldom hold two captions of an image, and the structure within captions needs them. An image
    that has no caption left gets none, so batches vary in size.

    Shape:
        image_of_caption (M,) int64, tensors of rows -> as many tensors, those rows first.
    """
    # Not the generator that has drawn the batches.
    generator = _generator(seed + 1, epoch)
    larger = []
    for rows in batches:
        wanted = image_of_caption.new_zeros(int(image_of_caption.max()) + 1, dtype=torch.bool)
        wanted[image_of_caption[rows]] = True
        free = wanted[image_of_caption]
        free[rows] = False
        (candidates,) = free.nonzero(as_tuple=True)
        if not len(candidates):
            larger.append(rows)
            continue
        order, place = shuffle_within_images(image_of_caption[candidates], generator)
        larger.append(torch.cat([rows, candidates[order[place < added]]]))
    return larger


def shuffle_within_images(image_of_caption: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """The rows image by image, an image's captions in random order, and the place of each among those of its image.

    Shape:
        image_of_caption (M,) int64 -> (M,) and (M,).
    """
    order = torch.randperm(len(image_of_caption), generator=generator)
    order = order[image_of_caption[order].argsort(stable=True)]
    counts = image_of_caption.bincount()
    place = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return order, place


def _generator(seed: int, epoch: int) -> Generator:
    return Generator().manual_seed(seed * 10_007 + epoch)
