"""ReferIt (RefCLEF): regions of IAPR TC-12 photographs with descriptions by players of a reference game."""

from pathlib import Path

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, PhraseEntry, RejectedEntry
from bifocal.datasets.formats.files import find_lists, read_json, read_names, require_root


class ReferIt:
    """20,000 photographs with 99,535 regions and 130,000 descriptions of them: 9,000 train, 1,000 val, 10,000 test.

    Kazemzadeh et al., "ReferItGame", EMNLP 2014, with the split and the files of Hu et al., "Natural language object
    retrieval", CVPR 2016. As in Akbari et al., CVPR 2019, each region has its unique descriptions. Each description is
    a caption of its image and a phrase with one box. Regions without a description are excluded and listed.

    Boxes in the files include their last pixel; the entries have the edges of the box.

    Args:
        root: folder of ``referit_bbox.json``, ``referit_imsize.json`` and, per split, ``referit_query_*.json`` and
            ``referit_*_imlist.txt``.
        images: folder of the photographs below ``root``.
    """

    def __init__(self, root: Path | str | None = None, images: str = "images") -> None:
        self.root, self.images = root, images

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "ReferIt", "referit_bbox.json, referit_query_test.json, referit_test_imlist.txt")
        boxes = read_json(root / "referit_bbox.json", "ReferIt")
        sizes = read_json(root / "referit_imsize.json", "ReferIt")
        lists = find_lists(root, {split: f"referit_{split}_imlist.txt" for split in SPLITS}, "ReferIt")
        entries: list[ImageEntry] = []
        captions: list[CaptionEntry] = []
        phrases: list[PhraseEntry] = []
        described: set[str] = set()
        listed: set[str] = set()
        try:
            for split, path in lists.items():
                names = read_names(path, "ReferIt")
                entries += [ImageEntry(name, f"{name}.jpg", split, _read_size(sizes[name])) for name in names]
                listed |= set(names)
                for region, texts in read_json(root / f"referit_query_{split}.json", "ReferIt").items():
                    image_id = region.rpartition("_")[0]
                    x0, y0, x1, y1 = (float(edge) for edge in boxes[region])
                    described.add(region)
                    for text in dict.fromkeys(" ".join(str(text).split()) for text in texts):
                        caption = CaptionEntry(len(captions), image_id, text)
                        captions.append(caption)
                        box = (x0, y0, x1 + 1, y1 + 1)
                        phrases.append(PhraseEntry(image_id, caption.caption_id, text, (box,)))
            excluded = [
                RejectedEntry("phrase", f"region {region}", "no description", intentional=True)
                for region in boxes
                if region not in described and region.rpartition("_")[0] in listed
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{root}: a file is not in ReferIt's format: {type(error).__name__} {error}") from error
        return Corpus(root / self.images, entries, captions, phrases, excluded)


def _read_size(size: list[int]) -> tuple[int, int]:
    width, height = size
    return int(width), int(height)
