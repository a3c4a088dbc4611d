"""A model with the index of its collection: what one answer is computed from, and what is replaced as a whole."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from bifocal.search.collection.collection import Collection
from bifocal.search.hits import SearchHit
from bifocal.search.index.index import SearchIndex
from bifocal.serving.encoders import Embedder
from bifocal.serving.heatmaps import LOCALIZER, HeatmapModel
from bifocal.serving.service.live.description import Description, describe
from bifocal.serving.service.live.items import Items
from bifocal.serving.service.phrases import Phrase
from bifocal.serving.service.ranking import Query, Rankings

Array = NDArray[Any]
SIDE = 64
"""Pixels along each side of a heatmap."""


@dataclass(frozen=True)
class Version:
    """Identity of a model with its index.

    Attributes:
        model: name and version of the model, or its folder.
        model_hash: SHA-256 of the exported model.
        number: of the version in the registry; None without one.
        release: hash of the release; None without one.
    """

    model: str
    model_hash: str
    number: int | None = None
    release: str | None = None


@dataclass(frozen=True)
class Heatmap:
    """Place of a phrase in an image; ``values`` (64, 64) in [0, 1] are over the image stretched to a square."""

    phrase: Phrase
    values: NDArray[np.float32]

    @property
    def point(self) -> tuple[float, float]:
        """X and y of the highest value, as fractions of width and height; of several, the one nearest their center."""
        rows, columns = np.nonzero(self.values == self.values.max())
        nearest = np.argmin((rows - rows.mean()) ** 2 + (columns - columns.mean()) ** 2)
        return (float(columns[nearest]) + 0.5) / SIDE, (float(rows[nearest]) + 0.5) / SIDE

    def data_url(self) -> str:
        """Return a PNG whose opacity is the blurred cube of the heatmap, so that low values hide nothing."""
        opacity = Image.fromarray((255 * self.values**3).round().astype(np.uint8))
        opacity = opacity.filter(ImageFilter.GaussianBlur(SIDE / 40))
        buffer = BytesIO()
        Image.merge("LA", (Image.new("L", opacity.size, 255), opacity)).save(buffer, "PNG")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


class ServedModel:
    """Search, heatmaps and items of one model and the index of its collection.

    Args:
        onnx: directory of the exported model.
        index: vectors of the items by this model.
        items: captions, values and image files.
        collection: with the items of the index.
        version: identity of model and index.
    """

    def __init__(self, onnx: Path, index: SearchIndex, items: Items, collection: Collection, version: Version) -> None:
        self.index, self.items, self.version, self._onnx = index, items, version, onnx
        self.embedder = Embedder(onnx, threads=1)
        self.heatmap_model = HeatmapModel(onnx, self.embedder) if (onnx / LOCALIZER).is_file() else None
        self.rankings = Rankings(index, collection, self.heatmap_model)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.index)

    def __contains__(self, item_id: object) -> bool:
        """Return whether the collection has an item."""
        return item_id in self._ids

    @cached_property
    def description(self) -> Description:
        """Languages, metadata and examples of the collection."""
        return describe(sorted(self._ids), self.items, self.index.items)

    @cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset(compress(self.index.ids, ~self.index.removed))

    @property
    def accepts_images(self) -> bool:
        """Whether the model reads image files."""
        return "image" in self.embedder.inputs

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the vectors (B, d) of B sentences."""
        return self.embedder.embed_sentences(sentences)

    def embed_image(self, file: bytes) -> Array:
        """Return the vector (d,) of an image file.

        Raises:
            ValueError: the file is not a complete image, or the model reads features alone.
        """
        if not self.accepts_images:
            raise ValueError("this model reads published features, not image files: search by a sentence")
        vector: Array = self.embedder.embed_images([file])[0]
        return vector

    def search(self, query: Query, k: int, offset: int = 0) -> list[SearchHit]:
        """Return ``k`` items that fit a query best; see ``Rankings.search``."""
        return self.rankings.search(query, k, offset)

    def heatmaps(self, file: Path, phrases: Sequence[Phrase]) -> list[Heatmap]:
        """Return the heatmap of each phrase in an image file.

        Raises:
            ValueError: the model has no localizer, or the file is not a complete image.
        """
        if self.heatmap_model is None:
            raise ValueError("this model has no localizer: it cannot show where a phrase is")
        texts = self.embed_sentences([phrase.text for phrase in phrases])
        found = self.heatmap_model.heatmaps(file.read_bytes(), texts, SIDE)
        return [Heatmap(phrase, scale(values)) for phrase, values in zip(phrases, found, strict=True)]


def scale(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values mapped linearly to [0, 1]; equal values become 0.

    Example:
        >>> scale(np.array([1.0, 2.0, 5.0], np.float32)).tolist()
        [0.0, 0.25, 1.0]
    """
    low, high = values.min(), values.max()
    return np.asarray((values - low) / (high - low if high > low else 1), dtype=np.float32)
