"""The exported pointing head of a backbone: a phrase as a mixture of classes, its map, and its
presence."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import read_json, typed
from bifocal.onnx.pixels import ImageFile, file_bytes, gray_image, read_pixels, read_squares
from bifocal.onnx.pointing.similarity import open_similarity
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.onnx.text.captions import unknown_words

Array = NDArray[Any]
DEVIATION = 1e-6
"""Smallest standard deviation that a map is divided by."""
MAP_TEMPERATURE, PRESENCE_TEMPERATURE = 6.0, 2.0
"""Divisors of the logits before the softmax: of each cell for the map, and of each cell for the
presence."""
FOLDER, GRAPH, DESCRIPTION = "pointing", "class_logits.onnx", "head.json"
"""Folder of the head in an exported model, its graph, and its values."""
STRIDE = 32
"""Sides of images are multiples of this number: of the stride of common backbones."""
LIKELY = 0.5
"""Probability from which a place is called a guess; places.js has the same number."""
ACCURATE = (448, 640, 896)
"""Sizes that point better than one, at four times the time of 640 pixels."""


def class_weights(similarities: Array, temperature: float) -> Array:
    """Return the weights of K classes in a phrase: the softmax of its similarities (..., K) over
    ``temperature``."""
    exponents = np.exp((similarities - similarities.max(axis=-1, keepdims=True)) / temperature)
    weights: Array = exponents / exponents.sum(axis=-1, keepdims=True)
    return weights


def cell_classes(logits: Array) -> Array:
    """Return the class probabilities (h, w, K) of cells, softened: softmax(logits / 6)."""
    return class_weights(logits, MAP_TEMPERATURE)


def phrase_map(classes: Array, weights: Array) -> Array:
    """Return the map (h, w) of a phrase: the class probabilities (h, w, K) of cells, mixed with the
    weights (K,)."""
    values: Array = classes @ (weights - weights.mean()).astype(classes.dtype)
    return values


def standardize(values: Array) -> Array:
    """Return a map with mean 0 and standard deviation 1; a constant map becomes 0."""
    standardized: Array = (values - values.mean()) / (values.std() + DEVIATION)
    return standardized


def enlargement(cells: int, side: int, sigma: float) -> Array:
    """Return the matrix (side, cells) that resizes one axis linearly, then smooths it with a
    Gaussian of ``sigma`` cells, 0 for no smoothing.
    """
    centers = (np.arange(side) + 0.5) / side
    position = np.clip(centers * cells - 0.5, 0, cells - 1)
    # The weight of a cell falls linearly to 0 at the next cell, as in bilinear interpolation.
    linear: Array = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(cells)))
    if not sigma:
        return linear
    gaussian = np.exp(-np.square((centers[:, None] - centers) * cells) / (2 * sigma**2))
    smoothed: Array = gaussian @ linear / gaussian.sum(axis=1, keepdims=True)
    return smoothed


def heatmap(maps: Sequence[Array], side: int, sigma: float, center: float) -> NDArray[np.float32]:
    """Return the heatmap (side, side) of a phrase from its maps (h, w) at one or several sizes of
    the image.

    Each map is standardized, enlarged, smoothed and standardized again; the sum is standardized.
    The prior ``center (x^2 + y^2)`` is subtracted, with x and y from -1 to 1.
    """
    total = np.zeros((side, side))
    for values in maps:
        rows, columns = (enlargement(cells, side, sigma) for cells in values.shape)
        total += standardize(rows @ standardize(values) @ columns.T)
    axis = np.square(2 * (np.arange(side) + 0.5) / side - 1)
    return np.asarray(standardize(total) - center * (axis[:, None] + axis), dtype=np.float32)


def class_presence(logits: Array) -> Array:
    """Return the mean over cells of the class probabilities softmax(logits / 2): (h, w, K) ->
    (K,)."""
    cells = logits.reshape(-1, logits.shape[-1]) / PRESENCE_TEMPERATURE
    mean: Array = class_weights(cells, 1.0).mean(axis=0)
    return mean


def presence_score(presence: Array, weights: Array) -> float:
    """Return the logarithm of the class probabilities (K,) of an image, mixed with the weights (K,)
    of a phrase."""
    return float(np.log(presence @ weights))


def probability(logit: float) -> float:
    """Return the logistic of a logit, such as ``slope score + offset + cosine c`` of a phrase in an
    image."""
    return float(1 / (1 + np.exp(-logit)))


@dataclass(frozen=True)
class HeadValues:
    """Numbers of a pointing head, see ``bifocal.localization.heads.ClassMixture``."""

    sizes: tuple[int, ...] = (640,)
    temperature: float = 0.07
    sigma: float = 0.8
    center: float = 0.25
    slope: float = 6.13
    offset: float = 41.74
    threshold: float = 0.3

    def __post_init__(self) -> None:
        if not self.sizes or any(size < STRIDE or size % STRIDE for size in self.sizes):
            raise ValueError(
                f"sizes are {list(self.sizes)}: expected multiples of {STRIDE}, such as 448"
            )


@dataclass(frozen=True, kw_only=True)
class HeadDescription(HeadValues):
    """Contents of ``head.json``."""

    interpolation: str
    cosine: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        read_squares(file_bytes(gray_image()), self.sizes, self.interpolation)


class Decoded(NamedTuple):
    """An image as squares (3, size, size) uint8, and as the trained model reads it, or None."""

    squares: list[Array]
    pixels: Array | None = None


@dataclass(frozen=True)
class Place:
    """Where a phrase is in an image.

    Attributes:
        heatmap: (side, side), over the image stretched to a square.
        probability: calibrated probability that the phrase is in the image; None if it is unknown.
        present: whether the probability reaches the threshold of the head; True if it is unknown.
    """

    heatmap: NDArray[np.float32]
    probability: float | None = None
    present: bool = True


@dataclass(frozen=True)
class ImageClasses:
    """Values of an image that all phrases share.

    Attributes:
        cells: (h, w, K), softened class probabilities of each cell, for each size of the image.
        presence: (K,), class probabilities of the image.
        vector: (d,), of the image in the trained model; None where it is not used.
    """

    cells: list[Array]
    presence: Array
    vector: Array | None = None


class PointingHead:
    """Where a phrase is in an image, and whether: see ``bifocal.localization.heads.ClassMixture``.

    Args:
        directory: as ``bifocal.export.pointing.export_head`` writes it.
        sizes: sides of the image in pixels, multiples of 32, whose maps are summed; None for the
            sizes of the export.
        threads: of a graph; 0 for one per core.
        embedder: the trained model, whose cosine of phrase and image is part of the probability
            after ``bifocal.search.calibration.phrases``.
    """

    def __init__(
        self,
        directory: Path,
        sizes: Sequence[int] | None = None,
        threads: int = 0,
        embedder: Embedder | None = None,
    ) -> None:
        if not (directory / DESCRIPTION).is_file() or not (directory / GRAPH).is_file():
            raise FileNotFoundError(
                f"{directory} has no {DESCRIPTION} or no {GRAPH}: it holds no such pointing head"
            )
        self.directory = directory
        values: HeadDescription = typed(HeadDescription, read_json(directory / DESCRIPTION))
        self.graph = open_session(directory / GRAPH, threads)
        self.similarity = open_similarity(directory)
        self.values, self.sizes = values, tuple(sizes or values.sizes)
        self.embedder = embedder if values.cosine else None
        self._last: tuple[tuple[tuple[int, ...], bytes], ImageClasses] | None = None
        self._lock = threading.Lock()

    @property
    def decoder(self) -> Callable[[bytes], Decoded]:
        """Function that decodes an image file for ``locate``; another process can call it."""
        preprocessing = None if self.embedder is None else self.embedder.preprocessing
        return partial(
            _decode,
            sizes=self.sizes,
            interpolation=self.values.interpolation,
            preprocessing=preprocessing,
        )

    def locate(self, image: ImageFile | Decoded, phrases: Sequence[str], side: int) -> list[Place]:
        """Return where each phrase is in an image file, or in a decoded one, see ``decoder``.

        The values of the last image are kept, so that a further phrase is fast.

        Raises:
            ValueError: the file is not a complete image.
        """
        read, cosines = self.read(image), np.zeros(len(phrases))
        if self.embedder is not None and read.vector is not None:
            cosines = self.embedder.embed_sentences(phrases) @ read.vector
        return [
            self.place(read, weights, side, float(cosine))
            for weights, cosine in zip(self.weights(phrases), cosines, strict=True)
        ]

    def unknown_words(self, phrase: str) -> list[str]:
        """Return the words of a phrase that the head does not know; ``ValueError`` if it knows
        none."""
        return unknown_words(self.similarity.known(phrase), phrase)

    def weights(self, phrases: Sequence[str]) -> Array:
        """Return the weights (P, K) of the K classes in P phrases."""
        return class_weights(self.similarity(phrases), self.values.temperature)

    def place(self, read: ImageClasses, weights: Array, side: int, cosine: float = 0.0) -> Place:
        """Return where the phrase with the weights (K,), and a cosine with the image, is."""
        maps = [phrase_map(classes, weights) for classes in read.cells]
        score = presence_score(read.presence, weights)
        values = self.values
        known = probability(values.slope * score + values.offset + values.cosine * cosine)
        shown = heatmap(maps, side, values.sigma, values.center)
        return Place(shown, known, known >= values.threshold)

    def read(self, image: ImageFile | Decoded) -> ImageClasses:
        """Return the values of an image; the last ones are kept.

        Raises:
            ValueError: the file is not a complete image.
        """
        content = image if isinstance(image, Decoded) else file_bytes(image)
        hashed = (
            content
            if isinstance(content, bytes)
            else b"".join(square.tobytes() for square in content.squares)
        )
        key = self.sizes, hashlib.sha256(hashed).digest()
        with self._lock:
            if self._last is not None and self._last[0] == key:
                return self._last[1]
        decoded = self.decoder(content) if isinstance(content, bytes) else content
        logits = [run_graph(self.graph, (square[None],))[0][0] for square in decoded.squares]
        presence = np.mean([class_presence(values) for values in logits], axis=0)
        vector = None
        if self.embedder is not None and decoded.pixels is not None:
            (vector,) = self.embedder.embed_pixels([decoded.pixels])
        read = ImageClasses([cell_classes(values) for values in logits], presence, vector)
        with self._lock:
            self._last = key, read
        return read


def _decode(
    file: bytes,
    sizes: Sequence[int],
    interpolation: str,
    preprocessing: Mapping[str, Any] | None,
) -> Decoded:
    return Decoded(
        read_squares(file, sizes, interpolation),
        None if preprocessing is None else read_pixels(file, **preprocessing),
    )
