"""From what a source lists to the tables of a dataset: every image opened once, everything refused listed."""

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path, PurePath

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, LabelEntry, PhraseEntry, RejectedEntry
from bifocal.datasets.images import ImageFile, inspect_image
from bifocal.datasets.tables import CAPTIONS, IMAGES, LABELS, LEAKAGE, PHRASES, REJECTED, write_table
from bifocal.progress import log_line, track

REASONS_SHOWN = 5
NO_FILE = ImageFile(0, 0, "")


def write_dataset(
    directory: Path,
    source: str,
    corpus: Corpus,
    *,
    copy_images: bool,
    max_pixels: int,
    max_rejected_fraction: float,
) -> dict[str, float]:
    """Check ``corpus`` and write it to ``directory``: the tables of ``bifocal.datasets.tables`` and ``dataset.json``.

    Args:
        source: the name of the corpus.
        copy_images: copy the accepted images into ``directory / "images"``, else refer to them where they are.
        max_pixels: larger images are refused by their header, before they are decoded.
        max_rejected_fraction: of images and captions together, in [0, 1]; what is left out by design does not count.

    Returns:
        Counts: images in all and of each split, captions, phrases, labels, rejected of each kind, left_out,
        leaked_images.

    Raises:
        ValueError: more is broken than ``max_rejected_fraction`` allows, or nothing is left. ``rejected.parquet`` is
            written all the same.
    """
    own = directory / "images"
    copies = own if copy_images and corpus.image_root != own else None
    images, refused = _listed(corpus)
    files, refused_files = _inspected(images, corpus.image_root, copies, max_pixels)
    captions, phrases, orphans = _of_images(corpus, files)
    labels, refused_labels = _labels(corpus, files)
    refused = [*refused, *refused_files, *orphans, *refused_labels]

    write_table(directory / "rejected.parquet", REJECTED, (asdict(refusal) for refusal in [*corpus.left_out, *refused]))
    _check_fraction(corpus, refused, max_rejected_fraction, directory)
    accepted = [image for image in images if image.image_id in files]
    if not accepted:
        raise ValueError(f"{source}: no image is left; see {directory / 'rejected.parquet'}")

    leaked = _leakage(accepted, files)
    write_table(directory / "images.parquet", IMAGES, (_image_row(image, files) for image in accepted))
    write_table(directory / "captions.parquet", CAPTIONS, (asdict(caption) for caption in captions))
    write_table(
        directory / "phrases.parquet",
        PHRASES,
        ({"phrase_id": number, **asdict(phrase)} for number, phrase in enumerate(phrases)),
    )
    write_table(directory / "leakage.parquet", LEAKAGE, leaked)
    if corpus.labels:
        write_table(directory / "labels.parquet", LABELS, (_label_row(label) for label in labels))
    inside = copies is not None or corpus.image_root == own
    image_root = "images" if inside else str(corpus.image_root.resolve())
    description = {"source": source, "image_root": image_root}
    (directory / "dataset.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")

    return {
        "images": len(accepted),
        **{f"images_{split}": sum(image.split == split for image in accepted) for split in SPLITS},
        "captions": len(captions),
        "phrases": len(phrases),
        "labels": len(labels),
        **{
            f"rejected_{kind}s": sum(refusal.kind == kind for refusal in refused)
            for kind in ("image", "caption", "phrase", "label")
        },
        "left_out": len(corpus.left_out),
        "leaked_images": len(leaked),
    }


def _listed(corpus: Corpus) -> tuple[list[ImageEntry], list[RejectedEntry]]:
    """The images that have a caption or a label, a name of their own and a place inside the image root."""
    described = {caption.image_id for caption in corpus.captions if caption.text.strip()}
    described |= {label.image_id for label in corpus.labels}
    images: dict[str, ImageEntry] = {}
    refused = []
    for image in corpus.images:
        place = PurePath(image.path or "")
        if image.image_id in images:
            reason = f"listed twice; the first, of split {images[image.image_id].split}, is kept"
        elif image.image_id not in described:
            reason = "it has no caption and no label"
        elif place.is_absolute() or ".." in place.parts:
            reason = f"its path leads out of the image root {corpus.image_root}"
        else:
            images[image.image_id] = image
            continue
        refused.append(RejectedEntry("image", image.path or image.image_id, reason))
    return list(images.values()), refused


def _inspected(
    images: list[ImageEntry], root: Path, copies: Path | None, max_pixels: int
) -> tuple[dict[str, ImageFile], list[RejectedEntry]]:
    def inspect(image: ImageEntry) -> ImageFile | str:
        if image.path is None:
            return NO_FILE
        try:
            return inspect_image(root / image.path, max_pixels, image.size, copies and copies / image.path)
        except ValueError as error:
            return str(error)

    files: dict[str, ImageFile] = {}
    refused = []
    # Threads are enough: Pillow's decoders and hashlib let go of the interpreter.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = zip(images, pool.map(inspect, images), strict=True)
        for image, file in track(found, "opening images", total=len(images)):
            if isinstance(file, ImageFile):
                files[image.image_id] = file
            else:
                refused.append(RejectedEntry("image", str(image.path), file))
    return files, refused


def _of_images(
    corpus: Corpus, files: dict[str, ImageFile]
) -> tuple[list[CaptionEntry], list[PhraseEntry], list[RejectedEntry]]:
    """The captions and phrases of the images in ``files``; phrases clipped to their image."""
    captions: dict[int, CaptionEntry] = {}
    phrases, refused = [], []
    for caption in corpus.captions:
        text = " ".join(caption.text.split())
        if caption.image_id not in files:
            reason = f"its image {caption.image_id} is not in the dataset"
        elif not text:
            reason = "it is empty"
        elif caption.caption_id in captions:
            reason = "its caption_id is given twice"
        else:
            captions[caption.caption_id] = replace(caption, text=text)
            continue
        refused.append(RejectedEntry("caption", f"{caption.caption_id} of {caption.image_id}", reason))
    for phrase in corpus.phrases:
        if phrase.image_id not in files:
            reason = f"its image {phrase.image_id} is not in the dataset"
        elif phrase.caption_id is not None and phrase.caption_id not in captions:
            reason = f"its caption {phrase.caption_id} is not in the dataset"
        elif not (boxes := _clipped(phrase, files[phrase.image_id])):
            reason = "no box of it has an area inside the image"
        else:
            phrases.append(replace(phrase, boxes=boxes))
            continue
        refused.append(RejectedEntry("phrase", f"{phrase.phrase!r} of {phrase.image_id}", reason))
    return list(captions.values()), phrases, refused


def _labels(corpus: Corpus, files: dict[str, ImageFile]) -> tuple[list[LabelEntry], list[RejectedEntry]]:
    labels: dict[tuple[str, str, str], LabelEntry] = {}
    refused = []
    for label in corpus.labels:
        key = (label.image_id, label.task, label.label)
        if label.image_id not in files:
            reason = f"its image {label.image_id} is not in the dataset"
        elif label.value is not None and not math.isfinite(label.value):
            reason = f"its value is {label.value}"
        elif key in labels:
            reason = "it is given twice"
        else:
            labels[key] = label
            continue
        refused.append(RejectedEntry("label", f"{label.task} {label.label} of {label.image_id}", reason))
    return list(labels.values()), refused


def _label_row(label: LabelEntry) -> dict[str, str | float | None]:
    # An image that stands alone is a group of one.
    return asdict(label) | {"group": label.group or label.image_id}


def _clipped(phrase: PhraseEntry, file: ImageFile) -> tuple[tuple[float, float, float, float], ...]:
    inside = (
        (max(x0, 0.0), max(y0, 0.0), min(x1, float(file.width)), min(y1, float(file.height)))
        for x0, y0, x1, y1 in phrase.boxes
    )
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in inside if x0 < x1 and y0 < y1)


def _check_fraction(corpus: Corpus, refused: list[RejectedEntry], allowed: float, directory: Path) -> None:
    broken = [refusal for refusal in refused if refusal.kind in ("image", "caption")]
    total = len(corpus.images) + len(corpus.captions)
    for kind, count in _counts(corpus.left_out):
        log_line(f"left out by design: {count} {kind}s, see rejected.parquet")
    for kind, count in _counts(refused):
        log_line(f"rejected: {count} {kind}s, see rejected.parquet")
    if len(broken) > allowed * total:
        images = sum(refusal.kind == "image" for refusal in broken)
        first = "; ".join(f"{refusal.what}: {refusal.reason}" for refusal in broken[:REASONS_SHOWN])
        raise ValueError(
            f"{images} of {len(corpus.images)} images and {len(broken) - images} of {len(corpus.captions)} captions "
            f"are refused, together {len(broken) / total:.2%}, more than max_rejected_fraction {allowed:.2%}. "
            f"The first: {first}. All are in {directory / 'rejected.parquet'}; mend them or raise the fraction"
        )


def _counts(refusals: Iterable[RejectedEntry]) -> list[tuple[str, int]]:
    counts: dict[str, int] = defaultdict(int)
    for refusal in refusals:
        counts[refusal.kind] += 1
    return sorted(counts.items())


def _leakage(images: list[ImageEntry], files: dict[str, ImageFile]) -> list[dict[str, str]]:
    same: dict[str, list[ImageEntry]] = defaultdict(list)
    for image in images:
        if image.path is not None:
            same[files[image.image_id].sha256].append(image)
    leaked = [
        {"sha256": sha256, "image_id": image.image_id, "split": image.split}
        for sha256, group in sorted(same.items())
        if len({image.split for image in group}) > 1
        for image in group
    ]
    if leaked:
        log_line(f"leakage: {len(leaked)} images are the same file in more than one split, see leakage.parquet")
    return leaked


def _image_row(image: ImageEntry, files: dict[str, ImageFile]) -> dict[str, str | int | None]:
    row: dict[str, str | int | None] = {"image_id": image.image_id, "path": image.path, "split": image.split}
    return {**row, **asdict(files[image.image_id]), "sha256": files[image.image_id].sha256 or None}
