"""Check a corpus: broken entries become rows of the table ``rejected``."""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from bifocal.datasets.base import (
    UNCAPTIONED,
    Box,
    CaptionEntry,
    Corpus,
    ImageEntry,
    LabelEntry,
    PhraseEntry,
    RejectedEntry,
)
from bifocal.onnx.images import ImageFile, inspect_image
from bifocal.progress import track


@dataclass(frozen=True)
class ValidatedCorpus:
    """Valid entries of a corpus, and the rejected ones."""

    images: Sequence[ImageEntry]
    files: dict[str, ImageFile]  # of every valid image, by image id
    captions: Sequence[CaptionEntry]
    phrases: Sequence[PhraseEntry]
    labels: Sequence[LabelEntry]
    rejected: Sequence[RejectedEntry]


def validate_corpus(corpus: Corpus, copy_to: Path | None, max_pixels: int) -> ValidatedCorpus:
    """Check every entry; open each image of at most ``max_pixels`` once; copy valid images to ``copy_to``."""
    images, unlisted = _validate_listing(corpus)
    rejected = [*corpus.rejected, *unlisted]
    files, broken = _inspect_images(images, corpus.image_root, copy_to, max_pixels)
    rejected += broken
    captions, broken = _validate_captions(corpus, files)
    rejected += broken
    phrases, broken = _validate_phrases(corpus, files, {caption.caption_id for caption in captions})
    rejected += broken
    labels, broken = _validate_labels(corpus, files)
    rejected += broken
    valid = [image for image in images if image.image_id in files]
    return ValidatedCorpus(valid, files, captions, phrases, labels, rejected)


def _validate_listing(corpus: Corpus) -> tuple[list[ImageEntry], list[RejectedEntry]]:
    """Keep images that have a caption or a label, an unused id and a path inside the image root."""
    described = {caption.image_id for caption in corpus.captions if caption.text.strip()}
    described |= {label.image_id for label in corpus.labels}
    images: dict[str, ImageEntry] = {}
    rejected = []
    for image in corpus.images:
        path = PurePath(image.path or "")
        if image.image_id in images:
            reason = f"listed twice; the first entry, in split {images[image.image_id].split}, is kept"
        elif image.split != UNCAPTIONED and image.image_id not in described:
            reason = "no caption and no label"
        elif path.is_absolute() or ".." in path.parts:
            reason = f"path outside the image root {corpus.image_root}"
        else:
            images[image.image_id] = image
            continue
        rejected.append(RejectedEntry("image", image.path or image.image_id, reason))
    return list(images.values()), rejected


def _inspect_images(
    images: list[ImageEntry], root: Path, copy_to: Path | None, max_pixels: int
) -> tuple[dict[str, ImageFile], list[RejectedEntry]]:
    def inspect(image: ImageEntry) -> ImageFile | str:
        if image.path is None:
            return ImageFile(0, 0, image.features_sha256 or "")  # the corpus publishes only features
        try:
            return inspect_image(root / image.path, max_pixels, image.size, copy_to and copy_to / image.path)
        except ValueError as error:
            return str(error)

    files: dict[str, ImageFile] = {}
    rejected = []
    # Threads suffice: Pillow's decoders and hashlib release the GIL.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        inspected = zip(images, pool.map(inspect, images), strict=True)
        for image, file in track(inspected, "opening images", total=len(images)):
            if isinstance(file, ImageFile):
                files[image.image_id] = file
            else:
                rejected.append(RejectedEntry("image", str(image.path), file))
    return files, rejected


def _validate_captions(corpus: Corpus, files: dict[str, ImageFile]) -> tuple[list[CaptionEntry], list[RejectedEntry]]:
    captions: dict[int, CaptionEntry] = {}
    rejected = []
    for caption in corpus.captions:
        text = " ".join(caption.text.split())
        if caption.image_id not in files:
            reason = f"its image {caption.image_id} is not in the dataset"
        elif not text:
            reason = "empty text"
        elif caption.caption_id in captions:
            reason = "duplicate caption_id"
        else:
            captions[caption.caption_id] = caption if text == caption.text else replace(caption, text=text)
            continue
        rejected.append(RejectedEntry("caption", f"{caption.caption_id} of {caption.image_id}", reason))
    return list(captions.values()), rejected


def _validate_phrases(
    corpus: Corpus, files: dict[str, ImageFile], caption_ids: set[int]
) -> tuple[list[PhraseEntry], list[RejectedEntry]]:
    """Clip boxes to the image; keep phrases that still have a box."""
    phrases = []
    rejected = []
    for phrase in corpus.phrases:
        if phrase.image_id not in files:
            reason = f"its image {phrase.image_id} is not in the dataset"
        elif phrase.caption_id is not None and phrase.caption_id not in caption_ids:
            reason = f"its caption {phrase.caption_id} is not in the dataset"
        elif not (boxes := _clip(phrase, files[phrase.image_id])):
            reason = "no box has an area inside the image"
        else:
            phrases.append(phrase if boxes == phrase.boxes else replace(phrase, boxes=boxes))
            continue
        rejected.append(RejectedEntry("phrase", f"{phrase.phrase!r} of {phrase.image_id}", reason))
    return phrases, rejected


def _clip(phrase: PhraseEntry, file: ImageFile) -> tuple[Box, ...]:
    clipped = (
        (max(x0, 0.0), max(y0, 0.0), min(x1, float(file.width)), min(y1, float(file.height)))
        for x0, y0, x1, y1 in phrase.boxes
    )
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in clipped if x0 < x1 and y0 < y1)


def _validate_labels(corpus: Corpus, files: dict[str, ImageFile]) -> tuple[list[LabelEntry], list[RejectedEntry]]:
    labels: dict[tuple[str, str, str], LabelEntry] = {}
    rejected = []
    for label in corpus.labels:
        key = (label.image_id, label.task, label.label)
        if label.image_id not in files:
            reason = f"its image {label.image_id} is not in the dataset"
        elif label.value is not None and not math.isfinite(label.value):
            reason = f"its value is {label.value}"
        elif key in labels:
            reason = "duplicate label"
        else:
            labels[key] = label
            continue
        rejected.append(RejectedEntry("label", f"{label.task} {label.label} of {label.image_id}", reason))
    return list(labels.values()), rejected
