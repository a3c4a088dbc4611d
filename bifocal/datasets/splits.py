"""Splits that are drawn from the training items: single items, or groups of near-duplicate
images."""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from bifocal.datasets.base import SPLITS
from bifocal.datasets.duplicates import near_duplicates
from bifocal.onnx.images import open_image
from bifocal.progress import log_line


def check_fractions(corpus: str, val: str | float, test: str | float, name: str, unit: str) -> None:
    """Check ``val`` and ``test`` of a reader: each a published subset, called ``name``, or a
    fraction of train."""
    fractions = [part for part in (val, test) if not isinstance(part, str)]
    if any(fraction < 0 for fraction in fractions) or sum(fractions) >= 1:
        raise ValueError(
            f"{corpus}: val is {val!r} and test is {test!r}; expected {name}, or a fraction of "
            f"the {unit} of train in [0, 1); the fractions must sum to less than 1"
        )


def missing_splits(counts: Mapping[str, int], needed: Iterable[str] = SPLITS) -> str | None:
    """Return what is wrong with the numbers of images of the splits; None if each of ``needed`` has
    images."""
    missing = [split for split in needed if not counts.get(split)]
    if not missing:
        return None
    found = ", ".join(f"{count:,} in {split}" for split, count in counts.items()) or "none"
    return (
        f"no image is in {' or '.join(missing)} ({found}): give rows of these splits in the "
        "column split, or leave the column out; splits are drawn by groups of "
        "near-duplicates, so add images that differ"
    )


def draw_splits(
    splits: Mapping[str, str], subsets: Mapping[str, str | float], seed: int
) -> dict[str, str]:
    """Return every item's split after moving fractions of train to other splits, by the seed and
    all ids."""
    drawn = dict(splits)
    ids = sorted(item for item, split in splits.items() if split == "train")
    order = np.random.default_rng(seed).permutation(len(ids))
    start = 0
    for split, subset in subsets.items():
        if not isinstance(subset, str):
            end = start + round(subset * len(ids))
            drawn |= {ids[index]: split for index in order[start:end]}
            start = end
    return drawn


def draw_groups(
    groups: Mapping[str, str], fractions: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Return a split for every item, one per group: groups in random order fill the fractions, the
    rest is train."""
    members: dict[str, list[str]] = {}
    for item in sorted(groups):
        members.setdefault(groups[item], []).append(item)
    names = sorted(members)
    left = [names[index] for index in np.random.default_rng(seed).permutation(len(names))]
    drawn = dict.fromkeys(groups, "train")
    for split, fraction in fractions.items():
        room = round(fraction * len(groups))
        for name in list(left):
            if len(members[name]) <= room:
                drawn |= dict.fromkeys(members[name], split)
                room -= len(members[name])
                left.remove(name)
    return drawn


def draw_counts(ids: Iterable[str], counts: Mapping[str, int], seed: int) -> dict[str, str]:
    """Return the split of ``counts`` drawn items per split, by the seed and the set of ids."""
    items = sorted(ids)
    if sum(counts.values()) > len(items):
        numbers = ", ".join(f"{count} for {split}" for split, count in counts.items())
        raise ValueError(f"{len(items)} images are fewer than the splits need: {numbers}")
    order = iter(np.random.default_rng(seed).permutation(len(items)).tolist())
    return {
        items[index]: split for split, count in counts.items() for index in islice(order, count)
    }


def drawn_splits(
    splits: Mapping[str, str | None],
    groups: Mapping[str, str],
    root: Path,
    fractions: Mapping[str, float],
    seed: int,
) -> dict[str, str]:
    """Return the given or drawn split of every image; images of one group, and near-duplicates,
    stay together.

    Splits of ``fractions`` without images are drawn from the images of train and from images
    without a split.
    """
    given = {split for split in splits.values() if split is not None}
    missing = {
        split: fraction
        for split, fraction in fractions.items()
        if split not in given and fraction > 0
    }
    free = [
        image for image, split in splits.items() if split is None or (split == "train" and missing)
    ]
    result = {image: split or "train" for image, split in splits.items()}
    if not free or not missing:
        return result
    together = _joined(free, groups, root)
    result |= draw_groups(together, missing, seed)
    counts = ", ".join(
        f"{sum(split == name for split in result.values()):,} {name}"
        for name in ("train", *fractions)
    )
    log_line(
        f"splits drawn from the seed, by {len(set(together.values())):,} groups of images: {counts}"
    )
    return result


def _joined(images: list[str], groups: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the group of every image, joined with the groups of its near-duplicates."""
    parent = {image: image for image in images}

    def find(image: str) -> str:
        while parent[image] != image:
            parent[image] = parent[parent[image]]
            image = parent[image]
        return image

    def join(first: str, second: str) -> None:
        a, b = sorted((find(first), find(second)))
        parent[b] = a

    first_of: dict[str, str] = {}
    for image in images:
        if image in groups:
            join(image, first_of.setdefault(groups[image], image))
    pairs = [
        pair
        for pair in near_duplicates(images, images, lambda image, side: _small(root / image, side))
        if pair.first < pair.second
    ]
    for pair in pairs:
        join(pair.first, pair.second)
    if pairs:
        log_line(f"{len(pairs):,} pairs of near-duplicates stay in the same split")
    return {image: find(image) for image in images}


def _small(path: Path, side: int) -> Image.Image:
    """Open an image at a low resolution; a broken image, which is rejected later, resembles no
    other."""
    try:
        return open_image(path, side=side)
    except ValueError:
        return Image.new("L", (1, 1))
