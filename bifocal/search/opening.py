"""Open the search of an exported model in its collection and its index."""

from pathlib import Path

import pyarrow as pa

from bifocal.durable import reading
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.heatmaps import LOCALIZER, HeatmapModel
from bifocal.onnx.identity import model_hash
from bifocal.search.collection.collection import Collection
from bifocal.search.index.from_collection import index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.search import Search


def open_search(onnx: Path, embedder: Embedder, collection: Path, index: Path | None) -> Search:
    """Return a model's search by an index or the collection's vectors; ``ValueError`` if they have another model."""
    with reading(*(folder.parent for folder in (onnx, collection, index) if folder is not None)):
        digest, opened = model_hash(onnx), Collection.open(collection)
        if opened.model.sha256 != digest:
            raise ValueError(f"the collection in {collection} was embedded by another model: embed it again")
        localizer = HeatmapModel(onnx, embedder) if (onnx / LOCALIZER).is_file() else None
        found = index_of_collection(opened, None) if index is None else SearchIndex.open(index, digest, opened)
        pa.default_memory_pool().release_unused()  # what reading a table has freed, 50 MB of a million items
        return Search(_without_deleted(found, opened), embedder, opened, localizer)


def _without_deleted(index: SearchIndex, collection: Collection) -> SearchIndex:
    """Return an index without the items that its collection does not have any more."""
    if index.items["item_id"].equals(collection.items["item_id"]) and not (collection.deleted & ~index.removed).any():
        return index
    rows = ((item_id, collection.lookup.row(item_id)) for item_id in index)
    gone = [item_id for item_id, row in rows if row is None or collection.deleted[row]]
    return index.without_items(gone) if gone else index
