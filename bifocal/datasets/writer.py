"""Write a corpus as the tables of a dataset: open every image once, list every rejected entry."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bifocal.datasets.base import SPLITS, Corpus, ImageEntry, RejectedEntry
from bifocal.datasets.tables import (
    CAPTIONS,
    IMAGES,
    LABELS,
    LEAKAGE,
    METADATA_FILE,
    PHRASES,
    REJECTED,
    write_metadata,
    write_table,
)
from bifocal.datasets.validation import validate_corpus
from bifocal.onnx.images import ImageFile
from bifocal.progress import log_line

REASONS_SHOWN = 5


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
    """Check ``corpus`` and write the tables of ``bifocal.datasets.tables`` and ``dataset.json`` to ``directory``.

    Args:
        name: name of the corpus.
        copy_images: copy the valid images to ``directory / "images"``; otherwise refer to the original files.
        max_pixels: reject larger images by their header, before they are decoded.
        max_rejected_fraction: fraction in [0, 1] of images and captions together that may be broken; intentionally
            excluded entries do not count.
        image_address: address of the corpus's image folder, such as ``s3://bucket/images``, if it is a local copy; the
            dataset refers to it in place of the folder unless the images are copied.

    Returns:
        Counts of images (all, and per split), captions, phrases, labels, rejected entries per kind, excluded entries
        and leaked images.

    Raises:
        TooManyRejectedError: more entries are broken than ``max_rejected_fraction`` allows.
        ValueError: no image is valid.
            ``rejected.parquet`` is written first.
    """
    inside = directory / "images"
    copy_to = inside if copy_images and corpus.image_root != inside else None
    valid = validate_corpus(corpus, copy_to, max_pixels)

    table = directory / "rejected.parquet"
    write_table(table, REJECTED, (asdict(entry) for entry in [*corpus.excluded, *valid.rejected]))
    _check_fraction(corpus, valid.rejected, max_rejected_fraction, table)
    if not valid.images:
        raise ValueError(f"{name}: no image is valid. The first problems: {_first(valid.rejected)}. {table} lists all")

    leaked = _find_leakage(valid.images, valid.files)
    write_table(directory / "images.parquet", IMAGES, (_image_row(image, valid.files) for image in valid.images))
    write_table(directory / "captions.parquet", CAPTIONS, (asdict(caption) for caption in valid.captions))
    phrases = ({"phrase_id": number, **asdict(phrase)} for number, phrase in enumerate(valid.phrases))
    write_table(directory / "phrases.parquet", PHRASES, phrases)
    write_table(directory / "leakage.parquet", LEAKAGE, leaked)
    if corpus.labels:
        # A single image is a group of one.
        labels = (asdict(label) | {"group": label.group or label.image_id} for label in valid.labels)
        write_table(directory / "labels.parquet", LABELS, labels)
    if corpus.metadata:
        write_metadata(directory / METADATA_FILE, corpus.metadata, (image.image_id for image in valid.images))
    # A relative root inside the directory stays valid when the directory moves.
    relative = copy_to is not None or corpus.image_root == inside
    image_root = "images" if relative else image_address or str(corpus.image_root.resolve())
    description = {"corpus": name, "image_root": image_root}
    (directory / "dataset.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")

    kinds = Counter(entry.kind for entry in valid.rejected)
    return {
        "images": len(valid.images),
        **{f"images_{split}": sum(image.split == split for image in valid.images) for split in SPLITS},
        "captions": len(valid.captions),
        "phrases": len(valid.phrases),
        "labels": len(valid.labels),
        **{f"rejected_{kind}s": kinds[kind] for kind in ("image", "caption", "phrase", "label")},
        "excluded": len(corpus.excluded),
        "leaked_images": len(leaked),
    }


class TooManyRejectedError(ValueError):
    """More entries of a corpus are broken than allowed."""


def _check_fraction(corpus: Corpus, rejected: Sequence[RejectedEntry], allowed: float, table: Path) -> None:
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
            f"{images} of {len(corpus.images)} images and {len(broken) - images} of {len(corpus.captions)} captions "
            f"are rejected, together {len(broken) / total:.2%}, more than max_rejected_fraction {allowed:.2%}. "
            f"The first: {_first(broken)}. {table} lists all; repair them or raise max_rejected_fraction"
        )


def _first(rejected: Sequence[RejectedEntry]) -> str:
    return "; ".join(f"{entry.entry}: {entry.reason}" for entry in rejected[:REASONS_SHOWN])


def _find_leakage(images: Sequence[ImageEntry], files: dict[str, ImageFile]) -> list[dict[str, str]]:
    """Return a row for every image whose file, or published features, also occurs in another split."""
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
        log_line(f"leakage: {len(leaked)} images have identical content in more than one split, see leakage.parquet")
    return leaked


def _image_row(image: ImageEntry, files: dict[str, ImageFile]) -> dict[str, str | int | None]:
    row: dict[str, str | int | None] = {"image_id": image.image_id, "path": image.path, "split": image.split}
    return {**row, **asdict(files[image.image_id]), "sha256": files[image.image_id].sha256 or None}
