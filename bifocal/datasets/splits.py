"""Splits that are drawn from the training items: single items, or groups of near-duplicate
images."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from bifocal.datasets.base import SPLITS
from bifocal.datasets.duplicates import near_duplicates
from bifocal.draws import drawn, positions
from bifocal.onnx.images import open_image
from bifocal.progress import log_line

LEAST = 10
"""Groups of a drawn split at least, of collections that have enough."""


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
    """Return every item's split after moving fractions of train to other splits."""
    fractions = {split: part for split, part in subsets.items() if not isinstance(part, str)}
    train = {item: item for item, split in splits.items() if split == "train"}
    return {**splits, **draw_groups(train, fractions, seed)}


def draw_groups(
    groups: Mapping[str, str], fractions: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Return a split for every item, by a hash of its group's name: other groups do not change it.

    Shares are approximate. A split with fewer than ``LEAST`` groups, or than its share of fewer
    groups, also gets the groups with the next hashes.
    """
    left = np.array(sorted(set(groups.values())), dtype=object)
    share, split_of = 1.0, dict[str, str]()
    parts = {split: part for split, part in sorted(fractions.items()) if part > 0}
    least = {split: min(round(part * len(left)), LEAST) for split, part in parts.items()}
    for split, part in parts.items():
        hashes = positions(left, f"{seed} {split}")
        # Others keep their least number, and train a group.
        room = len(left) - 1 - sum(least[other] for other in parts if other > split)
        count = min(max(least[split], int((hashes < part / share).sum())), max(0, room))
        order = hashes.argsort(kind="stable")
        split_of |= dict.fromkeys(left[order[:count]], split)
        left, share = left[np.sort(order[count:])], share - part
    return {item: split_of.get(group, "train") for item, group in groups.items()}


def draw_counts(ids: Iterable[str], counts: Mapping[str, int], seed: int) -> dict[str, str]:
    """Return the split of ``counts`` drawn items per split: another item changes one of each."""
    left, chosen = sorted(ids), dict[str, str]()
    if sum(counts.values()) > len(left):
        numbers = ", ".join(f"{count} for {split}" for split, count in counts.items())
        raise ValueError(f"{len(left)} images are fewer than the splits need: {numbers}")
    for split, count in counts.items():
        chosen |= dict.fromkeys(drawn(left, count, f"{seed} {split}"), split)
        left = [item for item in left if item not in chosen]
    return chosen


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
        f"splits drawn by the names of {len(set(together.values())):,} groups of images: {counts}"
    )
    return result


def _joined(images: list[str], groups: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the name of every image's group, joined with the groups of its near-duplicates.

    The name is the group's own, or the first of its images', which are often named by their times.
    """
    keys = {image: groups.get(image, image) for image in images}
    parent = {key: key for key in keys.values()}

    def find(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    pairs = [
        pair
        for pair in near_duplicates(images, images, lambda image, side: _small(root / image, side))
        if pair.first < pair.second
    ]
    for pair in pairs:
        first, second = sorted((find(keys[pair.first]), find(keys[pair.second])))
        parent[second] = first
    if pairs:
        log_line(f"{len(pairs):,} pairs of near-duplicates stay in the same split")
    return {image: find(key) for image, key in keys.items()}


def _small(path: Path, side: int) -> Image.Image:
    """Open an image at a low resolution; a broken image, which is rejected later, resembles no
    other."""
    try:
        return open_image(path, side=side)
    except ValueError:
        return Image.new("L", (1, 1))
