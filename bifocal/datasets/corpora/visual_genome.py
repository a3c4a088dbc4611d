"""Visual Genome's region descriptions, filtered as in the papers that localize them."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from bifocal.datasets.base import (
    SPLITS,
    SYNSETS,
    CaptionEntry,
    Corpus,
    ImageEntry,
    LabelEntry,
    PhraseEntry,
    RejectedEntry,
)
from bifocal.datasets.corpora.coco_instances import read_coco_captions
from bifocal.datasets.formats.entries import (
    placed,
    read_box,
    read_entries,
    read_id,
    read_size,
    read_text,
    read_whole,
)
from bifocal.datasets.formats.files import read_json, read_json_list, require_root, stream_json_list
from bifocal.datasets.splits import draw_counts

_SIGNS = str.maketrans({"½": "half", "—": "-", "™": "", "¢": " cent", "°": " degree", "…": ""})
_NOISE = re.compile(r"[^a-z0-9\s]")

_Listed = tuple[ImageEntry, str]
"""Image without its split, and its ``coco_id``."""
_Listing = tuple[dict[str, str], list[ImageEntry], list[CaptionEntry], list[RejectedEntry]]
"""Image id of each of Visual Genome's ids, images, captions and excluded entries."""


class VisualGenome:
    """108,000 photographs, each with about fifty regions and a description of each region.

    Krishna et al., "Visual Genome", IJCV 2017. By default it is filtered as in Akbari et al., CVPR
    2019, section 4.1, after Johnson et al., "DenseCap", CVPR 2016: signs and punctuation are
    removed; regions without a description or with more than ten words are excluded and listed;
    boxes are clipped to the image. Every description is a caption of its image and a phrase with
    one box.

    With ``coco``, the corpus has only the images that are also in COCO (matched by ``coco_id``),
    all in the split test, with COCO's captions and under COCO's ids, by which features of COCO are
    published: the pointing game of BEAN, section 4.2 (17,471 images of COCO val2014, with
    descriptions of any length). Of two images with one ``coco_id``, the second is excluded.

    Args:
        root: folder of ``image_data.json``, ``region_descriptions.json``, the splits and the
            photographs.
        splits: file of the splits below ``root``,
            ``{"train": [image ids], "val": ..., "test": ...}``, as DenseCap publishes it; or the
            number of images of each split, drawn at random, such as the 80,000, 10,000 and 10,000
            of Gordo and Larlus, CVPR 2017.
        coco: COCO's captions file below ``root``, such as ``captions_val2014.json``; None for all
            images.
        max_words: longer descriptions are excluded; None for no limit.
        seed: of the drawn splits.
        objects: file of the objects below ``root``, such as ``objects.json``: the number of objects
            of each WordNet synset becomes a label of the task "synsets" (Gordo and Larlus, section
            4); None for no labels.

    Raises:
        ValueError: ``max_words`` is less than 1, or the numbers in ``splits`` are not for train,
            val and test.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        splits: str | Mapping[str, int] = "densecap_splits.json",
        coco: str | None = None,
        max_words: int | None = 10,
        seed: int = 0,
        objects: str | None = None,
    ) -> None:
        if max_words is not None and max_words < 1:
            raise ValueError(f"max_words is {max_words}, expected at least 1, or null for no limit")
        if not isinstance(splits, str) and (set(splits) != set(SPLITS) or min(splits.values()) < 1):
            raise ValueError(
                f"splits is {dict(splits)}, expected a file or a number of images, at least 1, "
                f"for each of {', '.join(SPLITS)}"
            )
        self.root, self.splits, self.coco, self.max_words, self.seed = (
            root,
            splits,
            coco,
            max_words,
            seed,
        )
        self.objects = objects

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(
            self.root, "VisualGenome", "image_data.json, region_descriptions.json and VG_100K/"
        )
        data = read_json_list(root / "image_data.json", "VisualGenome")
        rejected: list[RejectedEntry] = []
        listed = read_entries(
            "image", placed("image_data.json", data, "image_id"), _entry, rejected
        )
        listing = (
            self._list_coco(root, listed, rejected) if self.coco else self._list_all(root, listed)
        )
        ids, entries, captions, excluded = listing
        phrases: list[PhraseEntry] = []

        def read_image(image: Any) -> None:
            own = read_id(image["id"]) if "id" in image else None
            if own is None or own in ids:
                records = placed(
                    f"region_descriptions.json, {own or 'image'}", image["regions"], "region_id"
                )
                read_entries(
                    "phrase" if self.coco else "caption",
                    records,
                    partial(read_region, own),
                    rejected,
                )

        def read_region(own: str | None, region: Any) -> None:
            if (image_id := ids.get(own or read_id(region["image_id"]))) is None:
                return
            number, words = (
                read_whole(region["region_id"]),
                clean(read_text(region["phrase"])).split(),
            )
            if not words or (self.max_words is not None and len(words) > self.max_words):
                limit = "at least 1" if self.max_words is None else f"1 to {self.max_words}"
                reason = f"{len(words)} words, expected {limit}"
                excluded.append(
                    RejectedEntry(
                        "phrase", f"region {number} of {image_id}", reason, intentional=True
                    )
                )
                return
            box, text = (
                read_box([region[key] for key in ("x", "y", "width", "height")]),
                " ".join(words),
            )
            if not self.coco:
                captions.append(CaptionEntry(number, image_id, text))
            phrases.append(PhraseEntry(image_id, None if self.coco else number, text, (box,)))

        stream = stream_json_list(root / "region_descriptions.json", "VisualGenome")
        read_entries("phrase", placed("region_descriptions.json", stream), read_image, rejected)
        labels = _read_synsets(root / self.objects, ids, rejected) if self.objects else []
        return Corpus(root, entries, captions, phrases, excluded, labels, rejected)

    def _list_all(self, root: Path, listed: Sequence[_Listed]) -> _Listing:
        image_ids = [image.image_id for image, _ in listed]
        if isinstance(self.splits, str):
            splits = read_json(root / self.splits, "VisualGenome", *SPLITS)
            split_of = {str(image): split for split in SPLITS for image in splits[split]}
            reason = f"in no list of {self.splits}"
        else:
            split_of = draw_counts(image_ids, self.splits, self.seed)
            reason = f"in no drawn split of {' + '.join(map(str, self.splits.values()))} images"
        excluded = [
            RejectedEntry("image", image_id, reason, intentional=True)
            for image_id in image_ids
            if image_id not in split_of
        ]
        images = [
            replace(image, split=split_of[image.image_id])
            for image, _ in listed
            if image.image_id in split_of
        ]
        return {image.image_id: image.image_id for image in images}, images, [], excluded

    def _list_coco(
        self, root: Path, listed: Sequence[_Listed], rejected: list[RejectedEntry]
    ) -> _Listing:
        annotations = read_json(root / str(self.coco), "VisualGenome", "images", "annotations")
        sentences: dict[str, list[CaptionEntry]] = defaultdict(list)
        for caption in read_coco_captions(str(self.coco), annotations["annotations"], rejected):
            sentences[caption.image_id].append(caption)
        shared: dict[str, ImageEntry] = {}
        excluded = []
        for image, coco_id in listed:
            if coco_id in shared:
                reason = f"another image has its coco_id {coco_id}"
                excluded.append(RejectedEntry("image", image.image_id, reason, intentional=True))
            elif coco_id in sentences:
                shared[coco_id] = image
        captions = [caption for coco_id in shared for caption in sentences[coco_id]]
        images = [
            replace(image, split="test", image_id=coco_id) for coco_id, image in shared.items()
        ]
        return (
            {image.image_id: coco_id for coco_id, image in shared.items()},
            images,
            captions,
            excluded,
        )


def clean(phrase: str) -> str:
    """Return a description in lower case, without accents, signs and punctuation."""
    plain = unicodedata.normalize("NFKD", phrase.translate(_SIGNS))
    return _NOISE.sub("", plain.lower()).strip()


def _read_synsets(
    path: Path, ids: Mapping[str, str], rejected: list[RejectedEntry]
) -> list[LabelEntry]:
    """Return the number of objects of each synset in each image; objects without a synset do not
    count."""
    labels: list[LabelEntry] = []

    def read(image: Any) -> None:
        image_id = ids.get(read_id(image["id"] if "id" in image else image["image_id"]))
        if image_id is not None:
            records = placed(f"{path.name}, {image_id}", image["objects"], "object_id")
            objects = read_entries("label", records, _names, rejected)
            counts = Counter(synset for synsets in objects for synset in synsets)
            labels.extend(
                LabelEntry(image_id, SYNSETS, name, float(count)) for name, count in counts.items()
            )

    read_entries("label", placed(path.name, stream_json_list(path, "VisualGenome")), read, rejected)
    return labels


def _names(item: Any) -> list[str]:
    return [read_text(name) for _, name in placed("synsets", item["synsets"])]


def _entry(image: Any) -> _Listed:
    # The URL ends with the folder, VG_100K or VG_100K_2, and the file.
    path = "/".join(PurePosixPath(read_text(image["url"])).parts[-2:])
    return ImageEntry(read_id(image["image_id"]), path, "", read_size(image)), str(
        image.get("coco_id")
    )
