"""Karpathy's ``dataset_*.json``: images, sentences and splits of Flickr30k and COCO in one file.

Karpathy and Fei-Fei, "Deep visual-semantic alignments for generating image descriptions", CVPR 2015.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Any

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, RejectedEntry


def read_karpathy(path: Path, image_root: Path, source: str, *, restval: bool = True) -> Corpus:
    """Read the file at ``path``; an image's file is ``filepath/filename`` below ``image_root``.

    The image's id is its ``cocoid`` if it has one, else its file name; the caption's id is its ``sentid``.

    Args:
        restval: images of the split "restval" join train; otherwise they are left out and listed.

    Raises:
        ValueError: there is no such file, or it is not in this format; names the image and the key.
    """
    images: list[ImageEntry] = []
    captions: list[CaptionEntry] = []
    left_out: list[RejectedEntry] = []
    for number, item in enumerate(read_json(path, source, "images")["images"]):
        try:
            name, split = str(item["filename"]), item["split"]
            image_id, place = str(item.get("cocoid", name)), PurePosixPath(item.get("filepath", "")) / name
            sentences = [(int(sentence["sentid"]), str(sentence["raw"])) for sentence in item["sentences"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: image {number} has no sound filename, filepath, split or sentences with sentid and raw: "
                f"{type(error).__name__} {error}; expected Karpathy's format"
            ) from error
        if split not in (*SPLITS, "restval"):
            raise ValueError(f"{path}: image {number} ({name}) has split {split!r}, expected {SPLITS} or 'restval'")
        if split == "restval" and not restval:
            reason = "in the split restval, which the option restval leaves out"
            left_out.append(RejectedEntry("image", name, reason, by_design=True))
            left_out += [
                RejectedEntry("caption", f"{sentid} of {image_id}", f"its image is {reason}", by_design=True)
                for sentid, _ in sentences
            ]
            continue
        images.append(ImageEntry(image_id, str(place), "train" if split == "restval" else split))
        captions += [CaptionEntry(sentid, image_id, text) for sentid, text in sentences]
    return Corpus(image_root, images, captions, left_out=left_out)


def read_json(path: Path, source: str, *keys: str) -> dict[str, Any]:
    """The object in a corpus's JSON file, with a list under each of ``keys``.

    Raises:
        ValueError: there is no such file, it is not JSON, or a list is missing.
    """
    value = _parsed(path, source)
    for key in keys:
        if not (isinstance(value, dict) and isinstance(value.get(key), list)):
            raise ValueError(f"{path}: expected an object with a list {key!r}")
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, got {type(value).__name__}")
    return dict(value)


def read_json_list(path: Path, source: str) -> list[Any]:
    """The list in a corpus's JSON file.

    Raises:
        ValueError: there is no such file, it is not JSON, or no list.
    """
    value = _parsed(path, source)
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list, got {type(value).__name__}")
    return value


def _parsed(path: Path, source: str) -> Any:
    if not path.is_file():
        raise ValueError(f"{source} needs {path}: no such file")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
