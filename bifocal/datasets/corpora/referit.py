"""ReferIt (RefCLEF): regions of IAPR TC-12 photographs with descriptions by players of a reference
game."""

from pathlib import Path
from typing import Any

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, PhraseEntry
from bifocal.datasets.formats.entries import placed, read_entries, read_text, read_whole
from bifocal.datasets.formats.files import find_lists, read_json, read_names, require_root


class ReferIt:
    """20,000 photographs with 99,535 regions and 130,000 descriptions of them: 9,000 train, 1,000
    val, 10,000 test.

    Kazemzadeh et al., "ReferItGame", EMNLP 2014, with the split and the files of Hu et al.,
    "Natural language object retrieval", CVPR 2016. As in Akbari et al., CVPR 2019, each region has
    its unique descriptions. Each description is a caption of its image and a phrase with one box.
    Regions without a description are excluded and listed.

    Boxes in the files include their last pixel; the entries have the edges of the box.

    Args:
        root: folder of ``referit_bbox.json``, ``referit_imsize.json`` and, per split,
            ``referit_query_*.json`` and ``referit_*_imlist.txt``.
        images: folder of the photographs below ``root``.
    """

    def __init__(self, root: Path | str | None = None, images: str = "images") -> None:
        self.root, self.images = root, images

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(
            self.root,
            "ReferIt",
            "referit_bbox.json, referit_query_test.json, referit_test_imlist.txt",
        )
        boxes = read_json(root / "referit_bbox.json", "ReferIt")
        sizes = read_json(root / "referit_imsize.json", "ReferIt")
        lists = find_lists(
            root, {split: f"referit_{split}_imlist.txt" for split in SPLITS}, "ReferIt"
        )
        corpus, described = Corpus(root / self.images), set[str]()

        def read_region(region: tuple[str, Any]) -> None:
            image_id = region[0].rpartition("_")[0]
            x0, y0, x1, y1 = map(float, boxes[region[0]])
            described.add(region[0])
            for text in dict.fromkeys(
                " ".join(text.split())
                for text in read_entries("caption", placed(*region), read_text, corpus.rejected)
            ):
                corpus.captions.append(CaptionEntry(len(corpus.captions), image_id, text))
                box = (x0, y0, x1 + 1, y1 + 1)
                corpus.phrases.append(
                    PhraseEntry(image_id, corpus.captions[-1].caption_id, text, (box,))
                )

        def read_image(named: tuple[str, str]) -> ImageEntry:
            name, split = named
            return ImageEntry(name, f"{name}.jpg", split, _read_size(sizes[name]))

        for split, path in lists.items():
            named = ((name, (name, split)) for name in read_names(path, "ReferIt"))
            corpus.images += read_entries("image", named, read_image, corpus.rejected)
            regions = read_json(root / f"referit_query_{split}.json", "ReferIt")
            records = ((f"region {item[0]}", item) for item in regions.items())
            read_entries("caption", records, read_region, corpus.rejected)
        listed = {image.image_id for image in corpus.images}
        for region in boxes:
            if region not in described and region.rpartition("_")[0] in listed:
                corpus.exclude("phrase", f"region {region}", "no description")
        return corpus


def _read_size(size: Any) -> tuple[int, int]:
    width, height = map(read_whole, size)
    return width, height
