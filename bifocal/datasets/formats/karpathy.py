"""Karpathy's ``dataset_*.json`` of Flickr30k and COCO: Karpathy and Fei-Fei, CVPR 2015."""

from pathlib import Path, PurePosixPath

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, RejectedEntry
from bifocal.datasets.formats.files import read_json


def read_karpathy(path: Path, image_root: Path, corpus: str, *, restval: bool = True) -> Corpus:
    """Read images ``filepath/filename`` below ``image_root``; the images of restval join train or are excluded."""
    images: list[ImageEntry] = []
    captions: list[CaptionEntry] = []
    excluded: list[RejectedEntry] = []
    for number, item in enumerate(read_json(path, corpus, "images")["images"]):
        try:
            name, split = str(item["filename"]), item["split"]
            image_id, file = str(item.get("cocoid", name)), PurePosixPath(item.get("filepath", "")) / name
            sentences = [(int(sentence["sentid"]), str(sentence["raw"])) for sentence in item["sentences"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: image {number} has no valid filename, filepath, split or sentences with sentid and raw: "
                f"{type(error).__name__} {error}; expected Karpathy's format"
            ) from error
        if split not in (*SPLITS, "restval"):
            raise ValueError(f"{path}: image {number} ({name}) has split {split!r}, expected {SPLITS} or 'restval'")
        if split == "restval" and not restval:
            excluded.append(RejectedEntry("image", name, "in the split restval; restval is False", intentional=True))
            excluded += [
                RejectedEntry("caption", f"{sentid} of {image_id}", "its image is excluded", intentional=True)
                for sentid, _ in sentences
            ]
            continue
        images.append(ImageEntry(image_id, str(file), "train" if split == "restval" else split))
        captions += [CaptionEntry(sentid, image_id, text) for sentid, text in sentences]
    return Corpus(image_root, images, captions, excluded=excluded)
