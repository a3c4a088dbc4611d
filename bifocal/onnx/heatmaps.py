"""Heatmaps of a phrase in an image by numpy, equal to the heatmaps of ``bifocal.localization``, and
their peaks."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.encoders import Array, ImageGraph
from bifocal.onnx.files import read_json
from bifocal.onnx.pixels import (
    DecodedImage,
    ImageFile,
    center_box,
    decode_pixels,
    file_bytes,
    shorter_size,
)
from bifocal.onnx.sessions import REGIONS

SIDE = 96
"""Pixels along each side of a heatmap, over the image stretched to a square."""
LOCALIZER = "localizer.json"
EPSILON = 1e-12
"""Smallest norm that a vector is divided by, as in ``torch.nn.functional.normalize``."""
DEVIATION = 1e-6
"""Smallest standard deviation that scores are divided by."""
Scores = Callable[..., NDArray[np.float32]]
WITH_BOXES = ("smoothed_activations",)
"""Scores that depend on the boxes of the regions."""


def peak(heatmap: NDArray[Any]) -> tuple[float, float]:
    """Return the highest value's position as fractions of the width and height; ties: nearest their
    center."""
    rows, columns = np.nonzero(heatmap == heatmap.max())
    nearest = np.argmin((rows - rows.mean()) ** 2 + (columns - columns.mean()) ** 2)
    return (float(columns[nearest]) + 0.5) / heatmap.shape[1], (
        float(rows[nearest]) + 0.5
    ) / heatmap.shape[0]


def scaled(heatmap: NDArray[Any]) -> NDArray[Any]:
    """Return a heatmap mapped linearly to [0, 1]; equal values become 0."""
    low, high = heatmap.min(), heatmap.max()
    return np.asarray((heatmap - low) / (high - low if high > low else 1))


class HeatmapModel:
    """The localizer of an exported model; ``localizer.json`` names its scores, vectors and
    boxes."""

    def __init__(self, directory: Path, encoder: ImageGraph) -> None:
        file = directory / LOCALIZER
        if not file.is_file():
            raise FileNotFoundError(
                f"{directory} has no {LOCALIZER}: the model has no localizer or reads "
                "published features, or it was exported by an older version; train "
                "SMILEEncoder, BEANEncoder or MultiLevelEncoder, or export it again"
            )
        description = read_json(file)
        self.encoder, self.vectors = encoder, str(description["vectors"])
        self.boxes = np.array(description["boxes"], dtype=np.float32).reshape(-1, 4)
        self.name, self.arguments = str(description["scores"]), dict(description["arguments"])
        given = [None] * (2 + (self.name in WITH_BOXES))
        signature(SCORES[self.name]).bind(*given, **self.arguments)

    def heatmaps(
        self, image: ImageFile | DecodedImage, texts: Array, side: int
    ) -> NDArray[np.float32]:
        """Return the heatmaps (P, side, side) of P phrases, over the image stretched to a
        square."""
        if not isinstance(image, DecodedImage):
            image = decode_pixels(file_bytes(image), self.encoder.preprocessing)
        (vectors,) = image_vectors(
            self.encoder, self.vectors, self.encoder.read_resized([image.pixels])
        )
        left, top, right, bottom = square_of(image.width, image.height, self.encoder.preprocessing)
        corner, sides = np.array([left, top] * 2), np.array([right - left, bottom - top] * 2)
        boxes = (corner + self.boxes * sides).astype(np.float32)
        return np.stack(
            [rasterize(self.scores(vectors, text, boxes), boxes, side) for text in texts]
        )

    def scores(self, vectors: Array, text: Array, boxes: Array) -> NDArray[np.float32]:
        """Return the scores (R,) of the regions of an image for a phrase."""
        arguments = self.arguments | ({"boxes": boxes} if self.name in WITH_BOXES else {})
        return SCORES[self.name](vectors, text, **arguments)


def square_of(width: int, height: int, preprocessing: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the part of an image that the graphs read, x0 y0 x1 y1 relative to its sides: a
    central crop, or all."""
    if "scaled" not in preprocessing:
        return 0.0, 0.0, 1.0, 1.0
    small = shorter_size(width, height, preprocessing["scaled"])
    box = center_box(*small, preprocessing["size"])
    return tuple(value / side for value, side in zip(box, 2 * small, strict=True))


def image_vectors(encoder: ImageGraph, vectors: str, inputs: Sequence[Array]) -> list[Array]:
    """Return the region vectors of each image: output ``regions`` (R, d), the first output's
    "cells" (L, R, d), or "single_regions", embeddings (R, d) of each region as an image.
    """
    if vectors == "single_regions":
        return [encoder.encode_inputs([region[None] for region in image]) for image in inputs]
    return list(encoder.encode_inputs(inputs, REGIONS if vectors == REGIONS else None))


def dot_products(vectors: Array, text: Array) -> NDArray[np.float32]:
    """Return the dot product of each region (R, d) with the phrase (d,): Engilberge's thesis, 2020,
    eq. (4.3)."""
    return np.asarray(vectors @ text, dtype=np.float32)


def largest_dimensions(vectors: Array, text: Array, k: int) -> NDArray[np.float32]:
    """Return eq. (9) of "Finding beans in burgers", CVPR 2018, for each cell (R, d): the k largest
    entries count."""
    kept = np.argsort(-text, kind="stable")[:k]
    return np.asarray(vectors[:, kept] @ np.abs(text[kept]), dtype=np.float32)


def attention(
    vectors: Array, text: Array, softmax: bool, level: int | None, unit: bool
) -> NDArray[np.float32]:
    """Return the heatmap of a phrase at its best level: Akbari et al., CVPR 2019, eq. (6a)."""
    similarity = vectors @ text
    heatmaps = np.maximum(similarity, 0)
    if softmax:
        present = vectors.any(axis=2)
        exponents = np.exp(
            np.where(present, similarity - similarity.max(axis=1, keepdims=True), -np.inf)
        )
        heatmaps = exponents / exponents.sum(axis=1, keepdims=True)
    attended = np.einsum("lr,lrd->ld", heatmaps, vectors)
    if unit:
        attended = attended / np.maximum(np.linalg.norm(attended, axis=1, keepdims=True), EPSILON)
    best = int(np.argmax(attended @ text)) if level is None else level
    return np.asarray(heatmaps[best], dtype=np.float32)


def smoothed_activations(
    vectors: Array, text: Array, boxes: Array, sigma: float, center: float
) -> NDArray[np.float32]:
    """Return the smoothed activations of the regions (R, d), less the prior of the center."""
    scores, centers = vectors @ text, (boxes[:, :2] + boxes[:, 2:]) / 2
    if sigma:
        distances = np.square(centers[:, None] - centers[None]).sum(axis=2)
        weights = np.exp(-distances / (2 * sigma**2))
        scores = weights @ scores / weights.sum(axis=1)
    standardized = (scores - scores.mean()) / max(float(scores.std()), DEVIATION)
    return np.asarray(
        standardized - center * np.square(2 * centers - 1).sum(axis=1), dtype=np.float32
    )


SCORES: Mapping[str, Scores] = MappingProxyType(
    {
        "dot_products": dot_products,
        "largest_dimensions": largest_dimensions,
        "attention": attention,
        "smoothed_activations": smoothed_activations,
    }
)
"""Scores of the regions of one image for one phrase, by the name in ``localizer.json``."""


def rasterize(scores: Array, boxes: Array, side: int) -> NDArray[np.float32]:
    """Return the heatmap (side, side) of the scores (R,) of boxes (R, 4); see
    ``bifocal.localization.rasterize``.

    Example:
        >>> halves = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
        >>> rasterize(np.array([1.0, 2.0]), halves, side=2).tolist()
        [[1.0, 2.0], [1.0, 2.0]]
    """
    centers = ((np.arange(side) + 0.5) / side).astype(np.float32)
    inside_x = (centers >= boxes[:, 0:1]) & (centers < boxes[:, 2:3])
    inside_y = (centers >= boxes[:, 1:2]) & (centers < boxes[:, 3:4])
    inside = inside_y[:, :, None] & inside_x[:, None, :]
    return np.asarray(
        np.where(inside, scores[:, None, None], scores.min()).max(axis=0), dtype=np.float32
    )
