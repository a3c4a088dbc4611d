"""Write a corpus as the tables of a dataset: check each entry, open each image once, list the
rejected entries."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

from bifocal.datasets.base import (
    SPLITS,
    UNCAPTIONED,
    Box,
    CaptionEntry,
    Corpus,
    ImageEntry,
    LabelEntry,
    PhraseEntry,
    RejectedEntry,
)
from bifocal.datasets.formats.folder import LINK
from bifocal.datasets.tables import (
    CAPTIONS,
    CORRECTIONS,
    CORRECTIONS_FILE,
    IMAGES,
    LABELS,
    LEAKAGE,
    METADATA_FILE,
    PHRASES,
    REJECTED,
    write_metadata,
    write_table,
)
from bifocal.durable import is_inside, write_json
from bifocal.onnx.images import InspectedImage, inspect_image
from bifocal.processors import usable_decoders
from bifocal.progress import log_line, track

REASONS_SHOWN = 5
T = TypeVar("T")


def write_dataset(
    directory: Path,
    name: str,
    corpus: Corpus,
    *,
    copy_images: bool,
    max_pixels: int,
    max_rejected_fraction: float,
    image_address: str | None = None,
) -> dict[str, float]:
    """Check ``corpus`` and write the tables of ``bifocal.datasets.tables`` and ``dataset.json`` to
    ``directory``.

    Args:
        name: name of the corpus.
        copy_images: copy the valid images to ``directory / "images"``; otherwise refer to the
            original files.
        max_pixels: reject larger images by their header, before they are decoded.
        max_rejected_fraction: fraction in [0, 1] of images and captions together that may be
            broken; intentionally excluded entries do not count.
        image_address: address of the corpus's image folder, such as ``s3://bucket/images``, if it
            is a local copy; the dataset refers to it in place of the folder unless the images are
            copied.

    Returns:
        Counts of images (all, and per split), captions, phrases, labels, rejected entries per kind,
        excluded entries and leaked images.

    Raises:
        TooManyRejectedError: more entries are broken than ``max_rejected_fraction`` allows.
        ValueError: no image is valid.
            ``rejected.parquet`` is written first.
    """
    inside = directory / "images"
    copy_to = inside if copy_images and corpus.image_root != inside else None
    valid, files = validate_corpus(corpus, copy_to, max_pixels)

    table = directory / "rejected.parquet"
    write_table(table, REJECTED, (asdict(entry) for entry in [*corpus.excluded, *valid.rejected]))
    _check_fraction(corpus, valid.rejected, max_rejected_fraction, table)
    if not valid.images:
        raise ValueError(
            f"{name}: no image is valid. The first problems: {_first(valid.rejected)}. {table} "
            "lists all"
        )

    leaked = _find_leakage(valid.images, files)
    write_table(
        directory / "images.parquet", IMAGES, (_image_row(image, files) for image in valid.images)
    )
    write_table(
        directory / "captions.parquet", CAPTIONS, (asdict(caption) for caption in valid.captions)
    )
    phrases = (
        {"phrase_id": number, **asdict(phrase)} for number, phrase in enumerate(valid.phrases)
    )
    write_table(directory / "phrases.parquet", PHRASES, phrases)
    write_table(directory / "leakage.parquet", LEAKAGE, leaked)
    known = {image.image_id for image in valid.images}
    corrections = [entry for entry in corpus.corrections if entry.image_id in known]
    if corrections:
        write_table(directory / CORRECTIONS_FILE, CORRECTIONS, map(asdict, corrections))
    if corpus.labels:
        # A single image is a group of one.
        labels = (
            asdict(label) | {"group": label.group or label.image_id} for label in valid.labels
        )
        write_table(directory / "labels.parquet", LABELS, labels)
    if corpus.metadata:
        write_metadata(
            directory / METADATA_FILE, corpus.metadata, (image.image_id for image in valid.images)
        )
    # A relative root inside the directory stays valid when the directory moves.
    relative = copy_to is not None or corpus.image_root == inside
    image_root = "images" if relative else image_address or str(corpus.image_root.resolve())
    description: dict[str, Any] = {"corpus": name, "image_root": image_root}
    if corpus.follow_links and not relative:
        description["follow_links"] = True
    write_json(directory / "dataset.json", description)

    kinds = Counter(entry.kind for entry in valid.rejected)
    return {
        "images": len(valid.images),
        **{
            f"images_{split}": sum(image.split == split for image in valid.images)
            for split in SPLITS
        },
        "captions": len(valid.captions),
        "corrections": len(corrections),
        "phrases": len(valid.phrases),
        "labels": len(valid.labels),
        **{f"rejected_{kind}s": kinds[kind] for kind in ("image", "caption", "phrase", "label")},
        "excluded": len(corpus.excluded),
        "leaked_images": len(leaked),
    }


class TooManyRejectedError(ValueError):
    """More entries of a corpus are broken than allowed."""


def _check_fraction(
    corpus: Corpus, rejected: Sequence[RejectedEntry], allowed: float, table: Path
) -> None:
    for kind, count in sorted(Counter(entry.kind for entry in corpus.excluded).items()):
        log_line(f"excluded on purpose: {count} {kind}s")
    for kind, count in sorted(Counter(entry.kind for entry in rejected).items()):
        first = next(entry for entry in rejected if entry.kind == kind)
        log_line(f"rejected: {count} {kind}s, such as {_first([first])}")
    broken = [entry for entry in rejected if entry.kind in ("image", "caption")]
    total = len(corpus.images) + len(corpus.captions) + len(corpus.rejected)
    if len(broken) > allowed * total:
        images = sum(entry.kind == "image" for entry in broken)
        raise TooManyRejectedError(
            f"{images} of {len(corpus.images)} images and {len(broken) - images} of "
            f"{len(corpus.captions)} captions are rejected, together "
            f"{len(broken) / total:.2%}, more than max_rejected_fraction {allowed:.2%}. The "
            f"first: {_first(broken)}. {table} lists all; repair them or raise "
            "max_rejected_fraction"
        )


def _first(rejected: Sequence[RejectedEntry]) -> str:
    return "; ".join(f"{entry.entry}: {entry.reason}" for entry in rejected[:REASONS_SHOWN])


def _find_leakage(
    images: Sequence[ImageEntry], files: dict[str, InspectedImage]
) -> list[dict[str, str]]:
    """Return a row for every image whose file, or published features, also occurs in another
    split."""
    by_hash: dict[str, list[ImageEntry]] = defaultdict(list)
    for image in images:
        if files[image.image_id].sha256:
            by_hash[files[image.image_id].sha256].append(image)
    leaked = [
        {"sha256": sha256, "image_id": image.image_id, "split": image.split}
        for sha256, group in sorted(by_hash.items())
        if len({image.split for image in group}) > 1
        for image in group
    ]
    if leaked:
        log_line(
            f"leakage: {len(leaked)} images have identical content in more than one split, see "
            "leakage.parquet"
        )
    return leaked


def _image_row(image: ImageEntry, files: dict[str, InspectedImage]) -> dict[str, str | int | None]:
    row: dict[str, str | int | None] = {
        "image_id": image.image_id,
        "path": image.path,
        "split": image.split,
    }
    return {**row, **asdict(files[image.image_id]), "sha256": files[image.image_id].sha256 or None}


def validate_corpus(
    corpus: Corpus, copy_to: Path | None, max_pixels: int
) -> tuple[Corpus, dict[str, InspectedImage]]:
    """Return the valid entries, and the files of the valid images by image id, which are copied to
    ``copy_to``.

    An image needs a caption or a label, an unused id and a path inside the image root. Boxes are
    clipped to the image. A phrase needs a box with an area.
    """
    rejected = list(corpus.rejected)

    def keep(
        kind: str, entries: Iterable[T], name: Callable[[T], str], check: Callable[[T], T | str]
    ) -> list[T]:
        """Return the valid entries as ``check`` corrects them; it returns the reason for rejecting
        another one."""
        checked = [(entry, check(entry)) for entry in entries]
        rejected.extend(
            RejectedEntry(kind, name(entry), why) for entry, why in checked if isinstance(why, str)
        )
        return [valid for _, valid in checked if not isinstance(valid, str)]

    described = {caption.image_id for caption in corpus.captions if caption.text.strip()}
    described |= {label.image_id for label in corpus.labels}
    splits: dict[str, str] = {}

    def listed(image: ImageEntry) -> ImageEntry | str:
        path = PurePath(image.path or "")
        if image.image_id in splits:
            return f"listed twice; the first entry, in split {splits[image.image_id]}, is kept"
        if image.split != UNCAPTIONED and image.image_id not in described:
            return "no caption and no label"
        if path.is_absolute() or ".." in path.parts:
            return f"path outside the image root {corpus.image_root}"
        splits[image.image_id] = image.split
        return image

    def inspect(image: ImageEntry) -> InspectedImage | str:
        if image.path is None:
            return InspectedImage(
                0, 0, image.features_sha256 or ""
            )  # the corpus publishes only features
        try:
            file = corpus.image_root / image.path
            if not (corpus.follow_links or is_inside(corpus.image_root, file, caches=True)):
                return LINK
            return inspect_image(file, max_pixels, image.size, copy_to and copy_to / image.path)
        except ValueError as error:
            return str(error)

    def image_name(image: ImageEntry) -> str:
        return image.path or image.image_id

    images = keep("image", corpus.images, image_name, listed)
    # Threads suffice: Pillow's decoders and hashlib release the GIL.
    with ThreadPoolExecutor(usable_decoders()) as pool:
        inspected = list(track(pool.map(inspect, images), "opening images", total=len(images)))
    found = {image.image_id: file for image, file in zip(images, inspected, strict=True)}
    files = {image_id: file for image_id, file in found.items() if isinstance(file, InspectedImage)}
    reasons = {image_id: reason for image_id, reason in found.items() if isinstance(reason, str)}
    images = keep("image", images, image_name, lambda image: reasons.get(image.image_id, image))
    caption_ids = set[int]()

    def missing_image(entry: CaptionEntry | PhraseEntry | LabelEntry) -> str | None:
        return (
            None if entry.image_id in files else f"its image {entry.image_id} is not in the dataset"
        )

    def caption(entry: CaptionEntry) -> CaptionEntry | str:
        text = " ".join(entry.text.split())
        if reason := missing_image(entry):
            return reason
        if not text:
            return "empty text"
        if entry.caption_id in caption_ids:
            return "duplicate caption_id"
        caption_ids.add(entry.caption_id)
        return entry if text == entry.text else replace(entry, text=text)

    def phrase(entry: PhraseEntry) -> PhraseEntry | str:
        if reason := missing_image(entry):
            return reason
        if entry.caption_id is not None and entry.caption_id not in caption_ids:
            return f"its caption {entry.caption_id} is not in the dataset"
        boxes = _clip(entry, files[entry.image_id])
        if not boxes:
            return "no box has an area inside the image"
        return entry if boxes == entry.boxes else replace(entry, boxes=boxes)

    label_keys = set[tuple[str, str, str]]()

    def label(entry: LabelEntry) -> LabelEntry | str:
        key = (entry.image_id, entry.task, entry.label)
        if reason := missing_image(entry):
            return reason
        if entry.value is not None and not math.isfinite(entry.value):
            return f"its value is {entry.value}"
        if key in label_keys:
            return "duplicate label"
        label_keys.add(key)
        return entry

    captions = keep(
        "caption", corpus.captions, lambda entry: f"{entry.caption_id} of {entry.image_id}", caption
    )
    phrases = keep(
        "phrase", corpus.phrases, lambda entry: f"{entry.phrase!r} of {entry.image_id}", phrase
    )
    labels = keep(
        "label",
        corpus.labels,
        lambda entry: f"{entry.task} {entry.label} of {entry.image_id}",
        label,
    )
    valid = replace(
        corpus, images=images, captions=captions, phrases=phrases, labels=labels, rejected=rejected
    )
    return valid, files


def _clip(phrase: PhraseEntry, file: InspectedImage) -> tuple[Box, ...]:
    clipped = (
        (max(x0, 0.0), max(y0, 0.0), min(x1, float(file.width)), min(y1, float(file.height)))
        for x0, y0, x1, y1 in phrase.boxes
    )
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in clipped if x0 < x1 and y0 < y1)
