"""Data of ``quality.pointing``: Flickr8k photographs with captions, and COCO photographs with
phrases."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.datasets.corpora import COCOInstances, Flickr8k
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.features.extractors import Grid
from bifocal.localization import peak_points
from bifocal.localization.base import RegionScores
from bifocal.metrics import pointing_hits
from bifocal.onnx.images import open_image
from bifocal.text.vectorizers.base import FittedVectorizer, Vectorizer
from bifocal.training.weights import FromFile

WEIGHTS = "weights/tf_efficientnet_lite2_imagenet.safetensors"
SENTENCES = "weights/all-MiniLM-L6-v2"
TRAINING_SIZE, SIZE = 260, 448
"""Pixels along each side of the images of Flickr8k, and of COCO."""
CAPTIONS = 5
Hits = NDArray[np.bool_]


@dataclass(frozen=True)
class Photographs:
    """Photographs of COCO with the phrases to point at.

    Attributes:
        files: of the N images.
        cells: (N, R, D), row by row.
        names: the distinct phrases.
        images, texts: (P,), row of each phrase's image, and of its text in ``names``.
        boxes: (n, 4) of each phrase, relative to the sides of its image.
        chosen_on: (P,) bool, whether the phrase belongs to the images on which values are chosen.
    """

    files: list[Path]
    cells: Tensor
    names: list[str]
    images: NDArray[np.int64]
    texts: NDArray[np.int64]
    boxes: list[NDArray[np.floating]]
    chosen_on: Hits

    @property
    def areas(self) -> NDArray[np.floating]:
        """Return the share (P,) of the image that the boxes of each phrase cover."""
        return np.array(
            [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1).sum() for boxes in self.boxes]
        )

    def regions(self) -> RegionBatch:
        """Return the cells of each image with their boxes."""
        side = round(self.cells.shape[1] ** 0.5)
        mask = torch.ones(self.cells.shape[:2], dtype=torch.bool)
        return RegionBatch(self.cells, mask, cell_boxes(side, side).expand(len(self.cells), -1, -1))

    def hits(self, scores: RegionScores) -> Hits:
        """Return whether the point of each phrase is in one of its boxes."""
        return pointing_hits(peak_points(scores).numpy().astype(float), self.boxes)


def read_photographs(data: Path, cache: Path, chosen: int, seed: int) -> Photographs:
    """Return the photographs of COCO.

    Args:
        chosen: number of images on which values are chosen.
        seed: of the draw of these images.
    """
    corpus = COCOInstances(data / "coco_mini", val=0.0).read(cache)
    entries = sorted(corpus.images, key=lambda entry: str(entry.path))
    rows = {entry.image_id: row for row, entry in enumerate(entries)}
    names = sorted({entry.phrase for entry in corpus.phrases})
    sides = [
        np.tile(entry.size or (1, 1), 2) for entry in entries
    ]  # COCO states the size of every image
    images = np.array([rows[entry.image_id] for entry in corpus.phrases])
    files = [corpus.image_root / entry.path for entry in entries if entry.path is not None]
    return Photographs(
        files,
        read_cells(SIZE, files, data, cache / f"coco-{SIZE}.npy", lambda cells: cells),
        names,
        images,
        np.array([names.index(entry.phrase) for entry in corpus.phrases]),
        [
            np.asarray(entry.boxes, dtype=float) / sides[rows[entry.image_id]]
            for entry in corpus.phrases
        ],
        (np.random.default_rng(seed).permutation(len(entries)) < chosen)[images],
    )


@dataclass(frozen=True)
class Captioned:
    """Training images of Flickr8k.

    Attributes:
        means: (n, D), the mean cell of each image.
        sentences: ``CAPTIONS`` captions of each image, one image after the other.
    """

    means: Tensor
    sentences: list[str]


def read_captioned(data: Path, cache: Path, count: int) -> Captioned:
    """Return the first ``count`` training images of Flickr8k."""
    corpus = Flickr8k(root=data / "flickr8k").read(cache)
    listed = (data / "flickr8k/Flickr_8k.trainImages.txt").read_text().split()[:count]
    by_name = {Path(str(image.path)).name: image for image in corpus.images}
    captions: dict[str, list[str]] = {}
    for entry in corpus.captions:
        captions.setdefault(entry.image_id, []).append(entry.text)
    images = [by_name[name] for name in listed]
    files = [corpus.image_root / image.path for image in images if image.path is not None]
    means = read_cells(
        TRAINING_SIZE, files, data, cache / f"flickr8k-{count}.npy", lambda cells: cells.mean(dim=1)
    )
    return Captioned(
        means, [text for image in images for text in captions[image.image_id][:CAPTIONS]]
    )


def read_cells(
    size: int, files: list[Path], data: Path, file: Path, pool: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return ``pool(cells)`` for the cells (n, R, D) of images with ``size`` pixels; read ``file``
    if it exists."""
    if not file.is_file():
        half = (0.5, 0.5, 0.5)
        extractor = Grid("tf_efficientnet_lite2", size=size, mean=half, std=half)
        FromFile(data / WEIGHTS).load(extractor.backbone)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(files), 8):
                pixels = torch.stack(
                    [extractor.preprocess(open_image(path)) for path in files[start : start + 8]]
                )
                parts.append(pool(extractor.cells(pixels)[0]).half())
        save(file, torch.cat(parts))
    return torch.from_numpy(np.load(file)).float()


def vectorize(
    vectorizer: Vectorizer, sentences: list[str], file: Path | None = None
) -> tuple[FittedVectorizer, Tensor]:
    """Fit a vectorizer, and return it with the vectors (n, K) of the sentences, from ``file`` if it
    exists."""
    vectorizer.fit(sentences, seed=0)
    fitted = FittedVectorizer(vectorizer)
    if file is None:
        return fitted, fitted.vectorize(sentences).values.float()
    if not file.is_file():
        save(file, fitted.vectorize(sentences).values)
    return fitted, torch.from_numpy(np.load(file)).float()


def save(file: Path, values: Tensor) -> None:
    """Write an array."""
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, values.numpy())
