"""Data quality: captions that several images share, and near-duplicate images in different splits."""

import numpy as np

from bifocal.datasets.duplicates import near_duplicates, shared_captions
from bifocal.evaluation.base import Result, Subject
from bifocal.report.sections import Block, Gallery, GalleryItem, Note, Picture, Section, Table

SHOWN_CAPTIONS, SHOWN_PAIRS = 10, 12


class DataQuality:
    """Properties of the data that make metrics look better or worse than the model is; no metric.

    Args:
        duplicate_check_images: images of the split, and of the other splits, to compare at most; 0 for none.
    """

    title = "Data quality"

    def __init__(self, duplicate_check_images: int = 5000) -> None:
        self.limit = duplicate_check_images

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``."""
        blocks = [*_shared_captions(subject), *_near_duplicates(subject, self.limit)]
        note = "Properties of the data that make metrics look better or worse than the model is."
        return Result(self.title, sections=[Section(self.title, note, blocks)])


def _shared_captions(subject: Subject) -> list[Block]:
    shared = shared_captions(subject.split.captions).head(SHOWN_CAPTIONS)
    if not len(shared):
        return [Note("No caption describes more than one image of this split.")]
    rows = [(str(text), str(count)) for text, count in shared.to_numpy()]
    return [Table("Captions that several images share", ("", "images"), rows, wide=True)]


def _near_duplicates(subject: Subject, limit: int) -> list[Block]:
    """Compare a random part of the split with a random part of the other splits."""
    images, thumbnails = subject.dataset.images, subject.thumbnails
    images = images[images["path"].notna()]
    inside = images["split"] == subject.split_name
    random = np.random.default_rng(subject.seed)
    all_ids = [images.loc[rows, "image_id"].tolist() for rows in (inside, ~inside)]
    drawn = [[ids[row] for row in sorted(random.permutation(len(ids))[:limit])] for ids in all_ids]
    if not all(drawn):
        return [Note("No image files of this and another split were compared.")]
    pairs = near_duplicates(drawn[0], drawn[1], thumbnails.open)
    split_of = dict(zip(images["image_id"], images["split"], strict=True))
    compared = (
        f"{len(drawn[0]):,} of {len(all_ids[0]):,} images of this split were compared with {len(drawn[1]):,} of "
        f"{len(all_ids[1]):,} images of other splits: {len(pairs):,} near-duplicates."
    )
    items = [
        GalleryItem(
            [Picture(thumbnails.uri(pair.first)), Picture(thumbnails.uri(pair.second))],
            f"{pair.first} and {pair.second} ({split_of[pair.second]}), correlation {pair.correlation:.4f}",
        )
        for pair in pairs[:SHOWN_PAIRS]
    ]
    return [Gallery(items, "Near-duplicates in other splits", compared)] if items else [Note(compared)]
