"""Served models from the folders of a model, its collection and its index."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.pointing import open_pointer
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, open_search
from bifocal.serving.service.live.items import Items
from bifocal.serving.service.served_model import ServedModel, Version


class RunSource:
    """Model, collection and index of a run folder; other folders replace them and the root of the images."""

    reversible = False  # the times of its files are part of a key

    def __init__(
        self, folder: Path, collection: Path | None = None, index: Path | None = None, images: Path | None = None
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
        return file_states([self.folder / ONNX, self.collection, *([] if self.index is None else [self.index])])

    def load(self) -> ServedModel:
        """Return the model of the run with its collection."""
        name = self.folder.resolve().name
        return open_served_model(self.folder / ONNX, self.collection, self.index, name, self.images)


def open_served_model(
    onnx: Path, collection: Path, index: Path | None, name: str, images: Path | None = None
) -> ServedModel:
    """Return a model with collection and index (default exact search); ``ValueError`` if they have another model."""
    embedder = Embedder(onnx, threads=1)
    search = open_search(onnx, embedder, collection, index)
    assert search.collection is not None
    version = Version(name, search.collection.model.sha256)
    pointer = open_pointer(onnx, embedder, threads=1)
    return ServedModel(search, embedder, Items(search.collection, images), version, pointer)


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
