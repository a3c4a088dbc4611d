"""Captions of published features: ``{split}_ims.npy``, ``{split}_caps.txt``,
``{split}_ids.txt``."""

from hashlib import sha256
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry
from bifocal.datasets.formats.files import open_array, read_lines, require_root

CAPTIONS_PER_IMAGE = 5


class PrecomputedCaptions:
    """Captions that VSE++ and SCAN publish with their features; there are no image files.

    Faghri et al., "VSE++", BMVC 2018; Lee et al., "Stacked cross attention", ECCV 2018. Line n of
    ``caps`` belongs to image n // 5. ``ims`` has one row per image, or one row per caption (each
    image five times in a row); the reader distinguishes the two by the counts. The same holds for
    ``ids``; the first line of an image is its published id.

    The image id is ``train-000015-391895``: split, (first) row in ``ims``, published id. ``path``
    of the images is null, ``width`` and ``height`` 0, and ``sha256`` the hash of the row, so the
    dataset changes if the features do.

    Args:
        root: folder of the files.
        train, val, test: prefix of the files of each split. COCO's 5,000 test images are
            ``testall``.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        train: str = "train",
        val: str = "dev",
        test: str = "test",
    ) -> None:
        self.root = root
        self.prefixes = dict(zip(SPLITS, (train, val, test), strict=True))

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(
            self.root,
            "PrecomputedCaptions",
            "{split}_ims.npy, {split}_caps.txt and {split}_ids.txt",
        )
        corpus = Corpus(root)
        for split, prefix in self.prefixes.items():
            texts = read_lines(root / f"{prefix}_caps.txt", "PrecomputedCaptions")
            published_ids = read_lines(root / f"{prefix}_ids.txt", "PrecomputedCaptions")
            images, rest = divmod(len(texts), CAPTIONS_PER_IMAGE)
            if rest:
                raise ValueError(
                    f"{root / f'{prefix}_caps.txt'} has {len(texts)} lines, expected "
                    f"{CAPTIONS_PER_IMAGE} per image"
                )
            array = root / f"{prefix}_ims.npy"
            rows = open_array(array, "PrecomputedCaptions")
            rows_per_image = _per_image(len(rows), images, array, "rows")
            ids_per_image = _per_image(
                len(published_ids), images, root / f"{prefix}_ids.txt", "lines"
            )
            for number in range(images):
                published_id = published_ids[number * ids_per_image].strip()
                row = number * rows_per_image
                image_id = f"{split}-{row:06d}-{published_id}"
                corpus.images.append(
                    ImageEntry(image_id, None, split, features_sha256=_row_hash(rows[row]))
                )
                for text in texts[number * CAPTIONS_PER_IMAGE : (number + 1) * CAPTIONS_PER_IMAGE]:
                    corpus.captions.append(CaptionEntry(len(corpus.captions), image_id, text))
        return corpus


def _row_hash(row: NDArray[Any]) -> str:
    return sha256(f"{row.dtype.str}{row.shape}".encode() + row.tobytes()).hexdigest()


def _per_image(count: int, images: int, path: Path, unit: str) -> int:
    """Return the number of rows or lines per image: 1, or the number of captions."""
    captions = images * CAPTIONS_PER_IMAGE
    if count not in (images, captions):
        raise ValueError(
            f"{path} has {count} {unit} for {captions} captions: expected {images} {unit}, one "
            f"per image, or {captions}, one per caption"
        )
    return 1 if count == images else CAPTIONS_PER_IMAGE
