"""Images with captions that a training needs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bifocal.datasets.corpora import ImageFolder

MIN_CAPTIONED = 10
"""Images with captions of which 15 % are at least two: the splits val and test need as many."""


def check_count(directory: str, images: "ImageFolder") -> int | None:
    """Return the images with captions, if they can be counted; raise ``ValueError`` if a training
    needs more."""
    count = images.count_captioned()
    if count is not None and count < MIN_CAPTIONED:
        raise ValueError(
            f"{directory} has {count} images with captions, and a training needs at least "
            f"{MIN_CAPTIONED}: add images with captions, or search these without a training, "
            f"by 'bifocal index {directory}'"
        )
    return count
