"""The exported pointing head of a backbone."""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.datasets.images import decode_image
from bifocal.datasets.resizing import DECODED_SCALE, resize_image
from bifocal.serving.image_files import ImageFile, file_bytes
from bifocal.serving.pointing.equations import (
    class_presence,
    class_weights,
    heatmap,
    phrase_map,
    presence_score,
    probability,
)
from bifocal.serving.pointing.similarity import open_similarity
from bifocal.serving.sessions import open_session, run_graph

FOLDER, GRAPH, DESCRIPTION = "pointing", "class_logits.onnx", "head.json"
"""Folder of the head in an exported model, its graph, and its values."""
ACCURATE = (448, 640, 896)
"""Sizes that point better than one, at four times the time of 640 pixels."""
MAX_PIXELS = 50_000_000

Array = NDArray[Any]


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
class ImageLogits:
    """Values of an image that all phrases share.

    Attributes:
        logits: (h, w, K) of the K classes in each cell, for each size of the image.
        presence: (K,), class probabilities of the image.
    """

    logits: list[Array]
    presence: Array


class PointingHead:
    """Where a phrase is in an image, and whether: see ``bifocal.localization.heads.ClassMixture``.

    Args:
        directory: as ``bifocal.export.pointing.export_head`` writes it.
        sizes: sides of the image in pixels, multiples of 32, whose maps are summed; None for the sizes of the export.
        threads: of a graph; 0 for one per core.

    Raises:
        FileNotFoundError: the folder has no head.
    """

    def __init__(self, directory: Path, sizes: Sequence[int] | None = None, threads: int = 0) -> None:
        if not (directory / DESCRIPTION).is_file():
            raise FileNotFoundError(f"{directory} has no {DESCRIPTION}: it holds no pointing head")
        values = json.loads((directory / DESCRIPTION).read_text())
        self.directory = directory
        self.graph = open_session(directory / GRAPH, threads)
        self.similarity = open_similarity(directory)
        self.sizes = tuple(sizes or values["sizes"])
        self.interpolation: str = values["interpolation"]
        self.temperature: float = values["temperature"]
        self.sigma: float = values["sigma"]
        self.center: float = values["center"]
        self.slope: float = values["slope"]
        self.offset: float = values["offset"]
        self.threshold: float = values["threshold"]
        self._last: tuple[tuple[tuple[int, ...], bytes], ImageLogits] | None = None
        self._lock = threading.Lock()

    def locate(self, image: ImageFile, phrases: Sequence[str], side: int) -> list[Place]:
        """Return where each phrase is in an image file; the last image is kept, so that a further phrase is fast.

        Raises:
            ValueError: the file is not a complete image.
        """
        read = self.read(file_bytes(image))
        return [self._place(read, weights, side) for weights in self.weights(phrases)]

    def weights(self, phrases: Sequence[str]) -> Array:
        """Return the weights (P, K) of the K classes in P phrases."""
        return class_weights(self.similarity(phrases), self.temperature)

    def _place(self, read: ImageLogits, weights: Array, side: int) -> Place:
        maps = [phrase_map(logits, weights) for logits in read.logits]
        known = probability(presence_score(read.presence, weights), self.slope, self.offset)
        return Place(heatmap(maps, side, self.sigma, self.center), known, known >= self.threshold)

    def read(self, content: bytes) -> ImageLogits:
        """Return the values of an image file; the last ones are kept.

        Raises:
            ValueError: the file is not a complete image.
        """
        key = self.sizes, hashlib.sha256(content).digest()
        with self._lock:
            if self._last is not None and self._last[0] == key:
                return self._last[1]
        image = decode_image(BytesIO(content), MAX_PIXELS, DECODED_SCALE * max(self.sizes))
        logits = []
        for size in self.sizes:
            pixels = np.array(resize_image(image, size, "square", self.interpolation)).transpose(2, 0, 1)
            logits.append(run_graph(self.graph, (pixels[None],))[0][0])
        read = ImageLogits(logits, np.mean([class_presence(values) for values in logits], axis=0))
        with self._lock:
            self._last = key, read
        return read
