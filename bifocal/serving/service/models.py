"""A model with the index of its collection: what one answer is computed from, and what is replaced
as a whole."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.heatmaps import SIDE, peak, scaled
from bifocal.onnx.pointing import Pointer, open_pointer
from bifocal.onnx.pointing.phrases import Phrase
from bifocal.search.search import Search
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, open_search
from bifocal.serving.service.description import (
    CollectionSummary,
    languages,
    newest_rows,
    summarize,
)
from bifocal.serving.service.schema import PhraseHeatmap

Array = NDArray[Any]
BLUR = SIDE / 40
"""Standard deviation of the blur of a heatmap, pixels."""


@dataclass(frozen=True)
class ModelVersion:
    """Identity of a model with its index."""

    model: str  # name and version, or the folder
    model_hash: str
    number: int | None = None  # in the registry
    release: str | None = None  # hash


class SearchRelease:
    """Search, heatmaps and items of one model and the index of its collection."""

    def __init__(
        self,
        search: Search,
        embedder: Embedder,
        version: ModelVersion,
        pointer: Pointer | None = None,
    ) -> None:
        self.search, self.index, self.items = search, search.index, search.items
        self.embedder, self.version, self.pointer = embedder, version, pointer

    @cached_property
    def summary(self) -> CollectionSummary:
        """Metadata and examples of the collection."""
        return summarize(self.index.items, np.flatnonzero(~self.index.removed), self.items)

    @cached_property
    def languages(self) -> list[str]:
        """Languages that the model reads, see ``bifocal.serving.service.description``. The first
        call takes a second: it loads the profiles of languages."""
        return languages(self.summary.captions, self.embedder.sentences.known)

    @cached_property
    def _newest(self) -> NDArray[np.int64]:
        return newest_rows(self.index.items)

    def newest(self, where: Mapping[str, Any] | None = None) -> NDArray[np.int64]:
        """Return the rows of the items that fulfill a filter, see ``newest_rows``."""
        allowed = self.index.allowed(where)
        return self._newest if allowed is None else self._newest[allowed[self._newest]]

    @property
    def accepts_images(self) -> bool:
        """Whether the model reads image files."""
        return "image" in self.embedder.inputs

    def heatmaps(self, image: Any, phrases: Sequence[Phrase]) -> list[PhraseHeatmap]:
        """Return the place and heatmap of each phrase, without them if it is probably not there.
        ``image`` is a file, or the output of the pointer's ``decoder``."""
        if self.pointer is None:
            raise ValueError("this model cannot show where a phrase is")
        places = self.pointer.locate(image, [phrase.text for phrase in phrases], SIDE)
        return [
            PhraseHeatmap(
                *phrase,
                peak(place.heatmap) if place.present else None,
                data_url(place.heatmap) if place.present else None,
                place.probability,
            )
            for phrase, place in zip(phrases, places, strict=True)
        ]


def data_url(heatmap: NDArray[np.float32]) -> str:
    """Return a PNG whose opacity is the blurred cube of a heatmap scaled to [0, 1], so that low
    values hide nothing."""
    opacity = Image.fromarray((255 * scaled(heatmap) ** 3).round().astype(np.uint8))
    opacity = opacity.filter(ImageFilter.GaussianBlur(BLUR))
    buffer = BytesIO()
    Image.merge("LA", (Image.new("L", opacity.size, 255), opacity)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


class RunSource:
    """Model, collection and index of a run folder; other folders replace them and the root of the
    images."""

    reversible = False  # the times of its files are part of a key

    def __init__(
        self,
        folder: Path,
        collection: Path | None = None,
        index: Path | None = None,
        images: Path | None = None,
    ) -> None:
        self.folder, self.images = folder, images
        self._collection, self._index = collection, index

    @property
    def collection(self) -> Path:
        """Folder of the collection."""
        return self.folder / COLLECTION if self._collection is None else self._collection

    @property
    def index(self) -> Path | None:
        """Folder of the index; None for exact search."""
        own = self.folder / INDEX
        return self._index if self._index is not None else own if own.is_dir() else None

    def key(self) -> str:
        """Return the state of the files that a new model, collection or index replaces."""
        return file_states(
            [self.folder / ONNX, self.collection, *([] if self.index is None else [self.index])]
        )

    def load(self) -> SearchRelease:
        """Return the model of the run with its collection."""
        name = self.folder.resolve().name
        return open_release(self.folder / ONNX, self.collection, self.index, name, self.images)


def open_release(
    onnx: Path, collection: Path, index: Path | None, name: str, images: Path | None = None
) -> SearchRelease:
    """Return a model with collection and index (default exact search); ``ValueError`` if they have
    another model."""
    embedder = Embedder(onnx, threads=1)
    search = open_search(onnx, embedder, collection, index, images)
    assert search.collection is not None
    version = ModelVersion(name, search.collection.model.sha256)
    pointer = open_pointer(onnx, embedder, threads=1)
    return SearchRelease(search, embedder, version, pointer)


def file_states(folders: Iterable[Path]) -> str:
    """Return a hash of the names, sizes and times of the files in folders."""
    states = []
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} does not exist")
        for file in sorted(folder.rglob("*")):
            state = file.stat()
            states.append((str(file), state.st_mtime_ns, state.st_size, state.st_ino))
    return hashlib.sha256(repr(states).encode()).hexdigest()
