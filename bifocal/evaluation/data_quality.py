"""Data quality: captions that several images share or that fit other images better, near-duplicates
across splits."""

import numpy as np

from bifocal.datasets.duplicates import mismatched_captions, near_duplicates, shared_captions
from bifocal.draws import drawn
from bifocal.evaluation.base import Result, Subject
from bifocal.image_encoders.base import mean_region
from bifocal.report.inspection import duplicate_gallery
from bifocal.report.sections import Block, Gallery, GalleryItem, Note, Picture, Section, Table

SHOWN_CAPTIONS, SHOWN_PAIRS = 10, 12


class DataQuality:
    """Properties of the data that make metrics look better or worse than the model is; no
    metric."""

    title = "Data quality"

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``."""
        blocks = [
            *_shared_captions(subject),
            *_mismatched_captions(subject),
            *_near_duplicates(subject),
        ]
        note = "Properties of the data that make metrics look better or worse than the model is."
        return Result(self.title, sections=[Section(self.title, note, blocks)])


def _shared_captions(subject: Subject) -> list[Block]:
    shared = shared_captions(subject.split.captions).head(SHOWN_CAPTIONS)
    if not len(shared):
        return [Note("No caption describes more than one image of this split.")]
    rows = [(str(text), str(count)) for text, count in shared.to_numpy()]
    return [Table("Captions that several images share", ("", "images"), rows, wide=True)]


def _mismatched_captions(subject: Subject) -> list[Block]:
    """List captions of a random part of all splits that fit other images better than their own."""
    if subject.features.pixels or subject.compared == 0:
        return []
    images = subject.dataset.images
    described = images[images["image_id"].isin(subject.dataset.captions["image_id"])][
        "image_id"
    ].tolist()
    ids = drawn(described, subject.compared, subject.seed)
    rows = subject.features.rows(ids)
    vectors = [
        mean_region(batch.features.float(), batch.mask).numpy()
        for batch in subject.features.batches(rows, 256)
    ]
    row_of = {image_id: row for row, image_id in enumerate(ids)}
    captions = subject.dataset.captions[subject.dataset.captions["image_id"].isin(row_of)]
    image_of_caption = captions["image_id"].map(row_of).to_numpy()
    found = mismatched_captions(
        np.concatenate(vectors), captions["text"].tolist(), image_of_caption, subject.seed
    )
    if not found:
        return [Note("No caption fits most other images better than its own.")]
    texts = captions["text"].tolist()
    items = []
    for mismatch in found[:SHOWN_PAIRS]:
        image_id = ids[image_of_caption[mismatch.caption]]
        note = (
            f'{image_id}: "{texts[mismatch.caption]}" {mismatch.better:.0%} of the other '
            "images fit it better."
        )
        items.append(GalleryItem([Picture(subject.thumbnails.uri(image_id))], note))
    share = (
        f"{len(found):,} of {len(texts):,} captions fit their image worse than nine of ten others"
    )
    note = f"{share}, by a model that was fitted on other images."
    return [Gallery(items, "Captions that may belong to another image", note)]


def _near_duplicates(subject: Subject) -> list[Block]:
    """Compare a random part of the split with a random part of the other splits."""
    images, thumbnails = subject.dataset.images, subject.thumbnails
    images = images[images["path"].notna()]
    inside = images["split"] == subject.split_name
    all_ids = [images.loc[rows, "image_id"].tolist() for rows in (inside, ~inside)]
    own, others = (drawn(ids, subject.compared, subject.seed) for ids in all_ids)
    if not (own and others):
        return [Note("No image files of this and another split were compared.")]
    pairs = near_duplicates(own, others, thumbnails.open)
    compared = (
        f"{len(own):,} of {len(all_ids[0]):,} images of this split were compared with "
        f"{len(others):,} of {len(all_ids[1]):,} images of other splits: {len(pairs):,} "
        "near-duplicates."
    )
    if not pairs:
        return [Note(compared)]
    return [
        duplicate_gallery(
            pairs[:SHOWN_PAIRS], thumbnails, "Near-duplicates in other splits", compared
        )
    ]
