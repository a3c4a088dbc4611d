"""Visual Genome's region descriptions, filtered as the papers that point at them do."""

import re
import unicodedata
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, PhraseEntry, RejectedEntry, require_root
from bifocal.datasets.formats.karpathy import read_json, read_json_list

LONGEST = 10
"""Words of a description; longer ones are left out."""
_SIGNS = str.maketrans({"½": "half", "—": "-", "™": "", "¢": " cent", "°": " degree", "…": ""})
_NOISE = re.compile(r"[^a-z0-9\s]")


class VisualGenome:
    """108,000 photographs, each with about fifty regions that a phrase describes.

    Krishna et al., "Visual Genome", IJCV 2017. Akbari et al., CVPR 2019, section 4.1, after Johnson et al.,
    "DenseCap", CVPR 2016: signs and punctuation are removed, regions without a description and those of more than ten
    words are left out and listed, boxes are clipped to the image. Every description is a caption of its image, and a
    phrase with one box.

    With ``coco`` only the images that COCO has as well are read, matched by their ``coco_id``, all of them to test on,
    with COCO's captions: the pointing game of BEAN, section 4.2 (17,471 images of COCO val2014).

    Args:
        root: folder of ``image_data.json``, ``region_descriptions.json``, the splits and the photographs.
        splits: file of the splits, ``{"train": [image ids], "val": ..., "test": ...}`` as DenseCap publishes it.
        coco: path from ``root`` of COCO's captions file, such as ``captions_val2014.json``; None for all images.
    """

    def __init__(self, root: Path | None = None, splits: str = "densecap_splits.json", coco: str | None = None) -> None:
        self.root, self.splits, self.coco = root, splits, coco

    def read(self, images: Path) -> Corpus:
        """List the corpus; ``images`` is not used.

        Raises:
            ValueError: a file is missing or not in its published format.
        """
        root = require_root(self.root, "VisualGenome", "image_data.json, region_descriptions.json and VG_100K/")
        data = read_json_list(root / "image_data.json", "VisualGenome")
        regions = read_json_list(root / "region_descriptions.json", "VisualGenome")
        try:
            entries, captions, left_out = self._coco(root, data) if self.coco else self._all(root, data)
            chosen = {entry.image_id for entry in entries}
            phrases: list[PhraseEntry] = []
            for image in regions:
                for region in image["regions"]:
                    image_id = str(image.get("id", region.get("image_id")))
                    if image_id not in chosen:
                        continue
                    words = clean(str(region["phrase"])).split()
                    if not 1 <= len(words) <= LONGEST:
                        reason = f"it has {len(words)} words, expected 1 to {LONGEST}"
                        what = f"region {region['region_id']} of {image_id}"
                        left_out.append(RejectedEntry("phrase", what, reason, by_design=True))
                        continue
                    x, y, width, height = (float(region[key]) for key in ("x", "y", "width", "height"))
                    caption_id = None
                    if not self.coco:
                        caption_id = int(region["region_id"])
                        captions.append(CaptionEntry(caption_id, image_id, " ".join(words)))
                    phrases.append(PhraseEntry(image_id, caption_id, " ".join(words), ((x, y, x + width, y + height),)))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{root}: image_data.json, region_descriptions.json or the splits are not in Visual Genome's format: "
                f"{type(error).__name__} {error}"
            ) from error
        return Corpus(root, entries, captions, phrases, left_out)

    def _all(self, root: Path, data: list[Any]) -> tuple[list[ImageEntry], list[CaptionEntry], list[RejectedEntry]]:
        splits = read_json(root / self.splits, "VisualGenome", *SPLITS)
        split_of = {str(image): split for split in SPLITS for image in splits[split]}
        left_out = [
            RejectedEntry("image", str(image["image_id"]), f"it is in no list of {self.splits}", by_design=True)
            for image in data
            if str(image["image_id"]) not in split_of
        ]
        return [_entry(image, split) for image in data if (split := split_of.get(str(image["image_id"])))], [], left_out

    def _coco(self, root: Path, data: list[Any]) -> tuple[list[ImageEntry], list[CaptionEntry], list[RejectedEntry]]:
        annotations = read_json(root / str(self.coco), "VisualGenome", "images", "annotations")
        sentences: dict[str, list[Any]] = defaultdict(list)
        for item in annotations["annotations"]:
            sentences[str(item["image_id"])].append(item)
        shared = [image for image in data if str(image.get("coco_id")) in sentences]
        captions = [
            CaptionEntry(int(item["id"]), str(image["image_id"]), str(item["caption"]))
            for image in shared
            for item in sentences[str(image["coco_id"])]
        ]
        return [_entry(image, "test") for image in shared], captions, []


def clean(phrase: str) -> str:
    """A description in lower case, without accents, signs and punctuation.

    >>> clean("A man's café, 3\N{DEGREE SIGN} — red!")
    'a mans cafe 3 degree  red'
    """
    plain = unicodedata.normalize("NFKD", phrase.translate(_SIGNS))
    return _NOISE.sub("", plain.lower()).strip()


def _entry(image: Any, split: str) -> ImageEntry:
    # The address ends with the folder, VG_100K or VG_100K_2, and the file.
    path = "/".join(PurePosixPath(str(image["url"])).parts[-2:])
    return ImageEntry(str(image["image_id"]), path, split, (int(image["width"]), int(image["height"])))
