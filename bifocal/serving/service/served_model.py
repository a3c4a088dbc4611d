"""A model with the index of its collection: what one answer is computed from, and what is replaced as a whole."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.heatmaps import SIDE, peak
from bifocal.onnx.pointing import Pointer
from bifocal.onnx.pointing.phrases import Phrase
from bifocal.search.search import Search
from bifocal.serving.service.live.description import Description, describe, newest_rows
from bifocal.serving.service.live.items import Items

Array = NDArray[Any]
BLUR = SIDE / 40
"""Standard deviation of the blur of a heatmap, pixels."""


@dataclass(frozen=True)
class Version:
    """Identity of a model with its index."""

    model: str  # name and version, or the folder
    model_hash: str
    number: int | None = None  # in the registry
    release: str | None = None  # hash


@dataclass(frozen=True)
class Heatmap:
    """Place of a phrase in an image, see ``bifocal.onnx.pointing.Place``; ``values`` (96, 96) are in [0, 1]."""

    phrase: Phrase
    values: NDArray[np.float32]
    probability: float | None = None
    present: bool = True

    @property
    def point(self) -> tuple[float, float]:
        """Position of the highest value as fractions of the width and height; ties: nearest their center."""
        return peak(self.values)

    def data_url(self) -> str:
        """Return a PNG whose opacity is the blurred cube of the heatmap, so that low values hide nothing."""
        opacity = Image.fromarray((255 * self.values**3).round().astype(np.uint8))
        opacity = opacity.filter(ImageFilter.GaussianBlur(BLUR))
        buffer = BytesIO()
        Image.merge("LA", (Image.new("L", opacity.size, 255), opacity)).save(buffer, "PNG")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


class ServedModel:
    """Search, heatmaps and items of one model and the index of its collection."""

    def __init__(
        self, search: Search, embedder: Embedder, items: Items, version: Version, pointer: Pointer | None = None
    ) -> None:
        self.search, self.index, self.embedder, self.pointer = search, search.index, embedder, pointer
        self.items, self.version = items, version

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.index)

    def __contains__(self, item_id: object) -> bool:
        """Return whether the collection has an item."""
        return item_id in self.index

    @cached_property
    def description(self) -> Description:
        """Metadata, examples and languages of the collection."""
        return describe(self.index.ids, np.flatnonzero(~self.index.removed), self.items, self.index.items)

    @cached_property
    def newest(self) -> NDArray[np.int64]:
        """Rows of the items that are not removed, see ``newest_rows``."""
        rows = newest_rows(self.index.items)
        return rows[~self.index.removed[rows]]

    @property
    def accepts_images(self) -> bool:
        """Whether the model reads image files."""
        return "image" in self.embedder.inputs

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the vectors (B, d) of B sentences."""
        return self.embedder.embed_sentences(sentences)

    def heatmaps(self, image: Any, phrases: Sequence[Phrase]) -> list[Heatmap]:
        """Return the heatmap of each phrase. ``image`` is a file, or the output of the pointer's ``decoder``."""
        if self.pointer is None:
            raise ValueError("this model cannot show where a phrase is")
        places = self.pointer.locate(image, [phrase.text for phrase in phrases], SIDE)
        return [
            Heatmap(phrase, scale(place.heatmap), place.probability, place.present)
            for phrase, place in zip(phrases, places, strict=True)
        ]


def scale(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values mapped linearly to [0, 1]; equal values become 0."""
    low, high = values.min(), values.max()
    return np.asarray((values - low) / (high - low if high > low else 1), dtype=np.float32)
