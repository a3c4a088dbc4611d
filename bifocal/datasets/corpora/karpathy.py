"""Photographs with the splits of Karpathy's files: COCO 2014 and Flickr30k."""

from pathlib import Path

from bifocal.datasets.base import Corpus
from bifocal.datasets.corpora.coco_instances import add_instances
from bifocal.datasets.formats.files import read_karpathy, require_root

SUBSETS = ("train2014", "val2014")


class COCO:
    """123,287 photographs with five captions or a few more: 82,783 train, 30,504 restval, 5,000
    val, 5,000 test.

    Lin et al., "Microsoft COCO: common objects in context", ECCV 2014. The image id is its
    ``cocoid``.

    Args:
        root: folder of ``dataset_coco.json`` and of its image folders ``train2014`` and
            ``val2014``.
        restval: add the 30,504 images of the original validation set that are in neither val nor
            test to train, as most papers since VSE++ do; if False, exclude and list them.
        instances: add the objects of ``annotations/instances_train2014.json`` and
            ``instances_val2014.json``: the names of categories become phrases with boxes and masks,
            as in ``COCOInstances`` (BEAN, section 4.2).
    """

    def __init__(
        self, root: Path | str | None = None, restval: bool = True, instances: bool = False
    ) -> None:
        self.root, self.restval, self.instances = root, restval, instances

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "COCO", "dataset_coco.json, train2014/ and val2014/")
        corpus = read_karpathy(root / "dataset_coco.json", root, "COCO", restval=self.restval)
        for name in SUBSETS if self.instances else ():
            add_instances(corpus, root / "annotations" / f"instances_{name}.json")
        return corpus


class Flickr30k:
    """31,014 photographs with five captions each: 29,000 train, 1,014 val, 1,000 test.

    Young et al., "From image descriptions to visual denotations", TACL 2014. The image id is its
    file name.

    Args:
        root: folder of ``dataset_flickr30k.json``.
        images: folder of the photographs below ``root``; the published archive calls it
            ``flickr30k-images``.
    """

    def __init__(self, root: Path | str | None = None, images: str = "images") -> None:
        self.root, self.images = root, images

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "Flickr30k", f"dataset_flickr30k.json and {self.images}/")
        return read_karpathy(root / "dataset_flickr30k.json", root / self.images, "Flickr30k")
