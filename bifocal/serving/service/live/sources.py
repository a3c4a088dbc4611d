"""Served models from the folders of a model, its collection and its index."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import DESCRIPTION
from bifocal.search.index.changes import remove_items
from bifocal.search.index.from_collection import index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX
from bifocal.serving.identity import model_hash
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
    """Return an exported model with its collection and its index, by default exact search.

    Raise ``ValueError`` if collection or index belong to another model.
    """
    digest = model_hash(onnx)
    opened = _open_collection(collection, digest)
    if index is None:
        searched = index_of_collection(opened, None)
    else:
        searched = without_deleted(SearchIndex.open(index, model=digest), opened)
    return ServedModel(onnx, searched, Items(opened, images), opened, Version(name, digest))


def without_deleted(index: SearchIndex, collection: Collection) -> SearchIndex:
    """Return an index without the items that its collection does not have any more."""
    live = {item_id for item_id, deleted in zip(collection.ids, collection.deleted, strict=True) if not deleted}
    indexed = zip(index.ids, index.removed, strict=True)
    gone = [item_id for item_id, removed in indexed if not removed and item_id not in live]
    return remove_items(index, gone) if gone else index


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


def _open_collection(folder: Path, digest: str) -> Collection:
    if not (folder / DESCRIPTION).is_file():
        raise FileNotFoundError(f"{folder} holds no collection: it has no {DESCRIPTION}")
    collection = Collection.open(folder)
    if collection.model.sha256 != digest:
        raise ValueError(f"the collection in {folder} was embedded by another model: embed it again")
    return collection
