"""COCO 2014 with the splits of Karpathy's ``dataset_coco.json``."""

from pathlib import Path

from bifocal.datasets.base import Corpus
from bifocal.datasets.files import require_root
from bifocal.datasets.formats.karpathy import read_karpathy
from bifocal.datasets.published import COCO_IMAGES, KARPATHY_SPLITS, PublishedCorpus


class COCO:
    """123,287 photographs with five captions or a few more: 82,783 train, 30,504 restval, 5,000 val, 5,000 test.

    Lin et al., "Microsoft COCO: common objects in context", ECCV 2014. The image id is its ``cocoid``.

    Args:
        root: folder of ``dataset_coco.json`` and of its image folders ``train2014`` and ``val2014``.
        restval: add the 30,504 images of the original validation set that are in neither val nor test to train, as
            most papers since VSE++ do; if False, exclude and list them.
    """

    def __init__(self, root: Path | str | None = None, restval: bool = True) -> None:
        self.root, self.restval = root, restval

    def published(self) -> PublishedCorpus:
        """Return the counts of the published files."""
        return PublishedCorpus(
            images={"train": 113_287 if self.restval else 82_783, "val": 5_000, "test": 5_000},
            captions_per_image=5.0,
            words_per_caption=10.5,
            words=27_000,
            frequent_words=10_000,
            file_size=163_000,
            image_size=(640, 480),
            metadata_size=144_000_000,
            downloads=(KARPATHY_SPLITS, *COCO_IMAGES),
        )

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used.

        Raises:
            ValueError: the JSON file is missing or is not in Karpathy's format.
        """
        root = require_root(self.root, "COCO", "dataset_coco.json, train2014/ and val2014/")
        return read_karpathy(root / "dataset_coco.json", root, "COCO", restval=self.restval)
