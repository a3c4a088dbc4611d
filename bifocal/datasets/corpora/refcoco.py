"""RefCOCO, RefCOCO+ and RefCOCOg: photographs of COCO with phrases that each name one object."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry, PhraseEntry
from bifocal.datasets.corpora.coco_instances import category_names
from bifocal.datasets.formats.entries import (
    placed,
    read_box,
    read_entries,
    read_id,
    read_size,
    read_text,
)
from bifocal.datasets.formats.files import find_lists, read_json, require_root


class RefCOCO:
    """20,000 to 26,000 photographs of COCO train2014 with 95,000 to 142,000 expressions, each of
    one object.

    Yu et al., "Modeling context in referring expressions", ECCV 2016 (RefCOCO, RefCOCO+, split by
    UNC); Mao et al., CVPR 2016, with the split of Nagaraja et al., ECCV 2016 (RefCOCOg, split by
    UMD). The original files are pickles; this reads the JSON files that the authors of MDETR
    published of them (Kamath et al., ICCV 2021), in COCO's format with one image entry per
    expression: ``finetune_refcoco_train.json``.

    Each expression is a caption of its image and a phrase with one box. The category is the name of
    COCO's category, the image id is COCO's. ``PhraseLocalization`` gives the accuracy of the
    papers: R@1 over the stored regions.

    Args:
        root: folder of the JSON files and of the photographs.
        dataset: ``refcoco``, ``refcoco+`` (no words of place) or ``refcocog`` (longer expressions).
        test: part that becomes the split "test": ``testA`` (people) or ``testB`` (other objects);
            ``test`` of RefCOCOg.
        images: folder of the photographs below ``root``.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        dataset: Literal["refcoco", "refcoco+", "refcocog"] = "refcoco",
        test: Literal["testA", "testB", "test"] = "testA",
        images: str = "train2014",
    ) -> None:
        if (test == "test") != (dataset == "refcocog"):
            raise ValueError(
                f"{dataset} has no part {test!r}: RefCOCOg has test, the others have testA and "
                "testB"
            )
        self.root, self.dataset, self.test, self.images = root, dataset, test, images

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(
            self.root, "RefCOCO", f"finetune_{self.dataset}_{self.test}.json and {self.images}/"
        )
        parts = {"train": "train", "val": "val", "test": self.test}
        lists = find_lists(
            root,
            {split: f"finetune_{self.dataset}_{part}.json" for split, part in parts.items()},
            "RefCOCO",
        )
        entries: dict[str, ImageEntry] = {}
        corpus = Corpus(root / self.images)

        def read(split: str, item: Any) -> None:
            expression, category = (
                expressions[read_id(item["image_id"])],
                names[read_id(item["category_id"])],
            )
            image_id, text = read_id(expression["original_id"]), read_text(expression["caption"])
            image = ImageEntry(
                image_id, read_text(expression["file_name"]), split, read_size(expression)
            )
            box = read_box(item["bbox"])
            if entries.setdefault(image_id, image).split != split:
                raise ValueError(f"image {image_id} is also in the part {entries[image_id].split}")
            corpus.captions.append(CaptionEntry(len(corpus.captions), image_id, text))
            corpus.phrases.append(
                PhraseEntry(image_id, corpus.captions[-1].caption_id, text, (box,), category)
            )

        for split, path in lists.items():
            content = read_json(path, "RefCOCO", "images", "annotations", "categories")
            names = category_names(path, content, corpus.rejected)
            images = placed(f"{path.name}, images", content["images"])
            expressions = dict(
                read_entries(
                    "image", images, lambda item: (read_id(item["id"]), item), corpus.rejected
                )
            )
            read_entries(
                "caption",
                placed(path.name, content["annotations"]),
                partial(read, split),
                corpus.rejected,
            )
        corpus.images += entries.values()
        return corpus
