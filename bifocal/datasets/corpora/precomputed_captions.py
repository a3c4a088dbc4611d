"""Captions of published features: ``{split}_ims.npy``, ``{split}_caps.txt``, ``{split}_ids.txt``."""

from pathlib import Path

import numpy as np

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, read_lines, require_root

CAPTIONS_PER_IMAGE = 5


class PrecomputedCaptions:
    """Features and captions as VSE++ and SCAN publish them; there are no image files.

    Faghri et al., "VSE++", BMVC 2018; Lee et al., "Stacked cross attention", ECCV 2018. Line n of ``caps`` belongs to
    image n // 5. ``ims`` has a row for each image or, each image five times in a row, one for each caption: the counts
    tell. ``ids`` likewise; the first line of an image is its published id. The image is called
    ``train-000015-391895``: the split, its (first) row in ``ims``, the published id. Of ``ims`` only the header is
    read here. ``path`` and ``sha256`` of the images are null, ``width`` and ``height`` 0, and no leakage is looked for.

    Args:
        root: folder of the files.
        train, val, test: what the files of a split are called. COCO's 5,000 test images are ``testall``.
    """

    def __init__(self, root: Path | None = None, train: str = "train", val: str = "dev", test: str = "test") -> None:
        self.root = root
        self.names = dict(zip(SPLITS, (train, val, test), strict=True))

    def read(self, images: Path) -> Corpus:
        """List the corpus; ``images`` is not used.

        Raises:
            ValueError: a file is missing or its count does not fit; says which counts would.
        """
        root = require_root(self.root, "PrecomputedCaptions", "{split}_ims.npy, {split}_caps.txt and {split}_ids.txt")
        entries: list[ImageEntry] = []
        captions: list[CaptionEntry] = []
        for split, name in self.names.items():
            texts = read_lines(root / f"{name}_caps.txt", "PrecomputedCaptions")
            published = read_lines(root / f"{name}_ids.txt", "PrecomputedCaptions")
            count, rest = divmod(len(texts), CAPTIONS_PER_IMAGE)
            if rest:
                raise ValueError(
                    f"{root / f'{name}_caps.txt'} has {len(texts)} lines, expected {CAPTIONS_PER_IMAGE} for every image"
                )
            rows_each = _each(_rows(root / f"{name}_ims.npy"), count, root / f"{name}_ims.npy", "rows")
            ids_each = _each(len(published), count, root / f"{name}_ids.txt", "lines")
            for number in range(count):
                image_id = f"{split}-{number * rows_each:06d}-{published[number * ids_each].strip()}"
                entries.append(ImageEntry(image_id, None, split))
                own = texts[number * CAPTIONS_PER_IMAGE : (number + 1) * CAPTIONS_PER_IMAGE]
                captions += [CaptionEntry(len(captions) + place, image_id, text) for place, text in enumerate(own)]
        return Corpus(root, entries, captions)


def _rows(path: Path) -> int:
    if not path.is_file():
        raise ValueError(f"PrecomputedCaptions needs {path}: no such file")
    try:
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is no whole array of numbers: {error}") from error
    if len(shape) not in (2, 3):
        raise ValueError(f"{path} has shape {shape}, expected (images, D) or (images, R, D)")
    return int(shape[0])


def _each(found: int, images: int, path: Path, unit: str) -> int:
    """How many of the ``found`` rows or lines belong to one image: 1, or as many as it has captions."""
    captions = images * CAPTIONS_PER_IMAGE
    if found not in (images, captions):
        raise ValueError(
            f"{path} has {found} {unit}, but the captions are {captions}: expected {images} {unit}, one an image, "
            f"or {captions}, one a caption"
        )
    return 1 if found == images else CAPTIONS_PER_IMAGE
