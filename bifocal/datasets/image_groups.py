"""Random splits of images; images of one group are in the same split."""

from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from bifocal.datasets.duplicates import near_duplicates
from bifocal.datasets.splits import draw_groups
from bifocal.onnx.images import open_image
from bifocal.progress import log_line


def drawn_splits(
    splits: Mapping[str, str | None],
    groups: Mapping[str, str],
    root: Path,
    fractions: Mapping[str, float],
    seed: int,
) -> dict[str, str]:
    """Return the given or drawn split of every image; images of one group, and near-duplicates, stay together.

    Splits of ``fractions`` without images are drawn from the images of train and from images without a split.
    """
    given = {split for split in splits.values() if split is not None}
    missing = {split: fraction for split, fraction in fractions.items() if split not in given and fraction > 0}
    free = [image for image, split in splits.items() if split is None or (split == "train" and missing)]
    result = {image: split or "train" for image, split in splits.items()}
    if not free or not missing:
        return result
    together = _joined(free, groups, root)
    result |= draw_groups(together, missing, seed)
    counts = ", ".join(f"{sum(split == name for split in result.values()):,} {name}" for name in ("train", *fractions))
    log_line(f"splits drawn from the seed, by {len(set(together.values())):,} groups of images: {counts}")
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
    """Open an image at a low resolution; a broken image, which is rejected later, resembles no other."""
    try:
        return open_image(path, side=side)
    except ValueError:
        return Image.new("L", (1, 1))
