"""Engines from the folders of a model, its collection and its index."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bifocal.datasets.remote_files import is_address
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import DESCRIPTION, META
from bifocal.search.index.changes import remove_items
from bifocal.search.index.from_collection import index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX
from bifocal.serving.identity import model_hash
from bifocal.serving.service.served_model import ServedModel, Version


class CollectionItems:
    """Items of a collection."""

    def __init__(self, collection: Collection, images: Path | None = None) -> None:
        self._collection, self._images = collection, images
        root = collection.description.root
        self._has_files = images is not None or (not is_address(root) and (collection.directory / root).is_dir())
        self._rows = {item_id: row for row, item_id in enumerate(collection.ids)}
        self._columns = [name for name in collection.items.column_names if name.startswith(META)]

    def captions(self, item_id: str) -> list[str]:
        """Return the sentences of an item."""
        return self._collection.captions(self._rows[item_id])

    def metadata(self, item_id: str) -> dict[str, Any]:
        """Return the values of an item; times are texts."""
        row = self._rows[item_id]
        values = {name.removeprefix(META): self._collection.items[name][row].as_py() for name in self._columns}
        return {name: value if _is_json(value) else str(value) for name, value in values.items()}

    def file(self, item_id: str) -> Path | None:
        """Return the file of an item's image; None if it is at an address, or this machine lacks the folder."""
        name: str | None = self._collection.items["image"][self._rows[item_id]].as_py()
        if name is None or not self._has_files:
            return None
        root = self._collection.directory / self._collection.description.root
        return (root if self._images is None else self._images) / name


class RunSource:
    """Model, collection and index of a run folder."""

    reversible = False
    """The times of its files are part of a key."""

    def __init__(
        self, folder: Path, collection: Path | None = None, index: Path | None = None, images: Path | None = None,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self.folder, self.images, self.threads = folder, images, threads
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
        folders = [self.folder / ONNX, self.collection, *([] if self.index is None else [self.index])]
        return file_states(folders)

    def load(self) -> ServedModel:
        """Return the model of the run with its collection."""
        name = self.folder.resolve().name
        return open_served_model(self.folder / ONNX, self.collection, self.index, name, self.threads, self.images)


def open_served_model(
    onnx: Path, collection: Path, index: Path | None, name: str, threads: int = 1, images: Path | None = None
) -> ServedModel:
    """Return the served model of an exported model with its collection."""
    digest = model_hash(onnx)
    opened = _open_collection(collection, digest)
    if index is None:
        searched = index_of_collection(opened, None)
    else:
        searched = without_deleted(SearchIndex.open(index, model=digest), opened)
    return ServedModel(onnx, searched, CollectionItems(opened, images), opened, Version(name, digest), threads)


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


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
