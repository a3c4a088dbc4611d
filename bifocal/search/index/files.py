"""Files of an index: names, the description, reading and writing."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.durable import write_json
from bifocal.onnx.files import read_versioned, read_whole, typed
from bifocal.search.collection.format import ModelIdentity

DESCRIPTION, ITEMS, VECTORS = "index.json", "items.parquet", "vectors.f16"
BIAS, REMOVED, APPROXIMATE, KEYWORDS = "bias.npy", "removed.npy", "index.faiss", "keywords.arrow"
SCHEMA_VERSION = 1
Array = NDArray[Any]
BATCH = 65_536


@dataclass(frozen=True)
class Measured:
    """What searches in the index cost and find; a search has one query and k = 10."""

    recall_at_10: float  # mean share of the exact ten best items that a search finds
    bytes: int  # of the files that a search reads: vectors, biases and the index of faiss
    queries: int
    p50_ms: float = math.nan  # not in the file: equal inputs give equal files
    p99_ms: float = math.nan


@dataclass(frozen=True)
class IndexDescription:
    """Contents of ``index.json``."""

    dimension: int
    count: int  # items, with the removed ones
    model: ModelIdentity | None = None
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    hubness: Mapping[str, Any] | None = (
        None  # correction that the biases come from; None without biases
    )
    factory: str | None = None  # ``index_factory`` string of faiss; None for an exact index
    effort: int | None = None  # ``nprobe`` or ``efSearch``; None for the default of faiss
    candidates: int = 10  # of faiss for each result, which are then ranked by their float16 vectors
    measured: Measured | None = None
    metric: str = "cosine"

    def write(self, directory: Path) -> None:
        """Write ``index.json``; a crash leaves no incomplete file."""
        content = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        for time in ("p50_ms", "p99_ms"):
            (content["measured"] or {}).pop(time, None)
        write_json(directory / DESCRIPTION, content)

    @classmethod
    def read(cls, directory: Path) -> "IndexDescription":
        """Read ``index.json``."""
        file = directory / DESCRIPTION
        content = read_versioned(file, "index", SCHEMA_VERSION, "build the index again")
        description: IndexDescription = read_whole(file, lambda _: typed(cls, content))
        return description

    def check_model(self, sha256: str, directory: Path) -> None:
        """Raise ``ValueError`` unless the model with this hash computed the vectors in a
        directory."""
        if self.model is None or self.model.sha256 != sha256:
            name = "an unknown model" if self.model is None else f"model {self.model.name!r}"
            version = (
                ""
                if self.model is None or self.model.version is None
                else f" version {self.model.version}"
            )
            digest = "" if self.model is None else f" with hash {self.model.sha256[:12]}"
            raise ValueError(
                f"{directory} holds vectors of {name}{version}{digest}, but the queries come "
                f"from a model with hash {sha256[:12]}: build the index again with this model"
            )


def without_values(items: pa.Table, removed: Array) -> pa.Table:
    """Return the items with nulls in place of all values of the removed items (N,), but their
    ids."""
    kept = pa.array(np.arange(len(items)), mask=removed)
    columns = [
        items[name] if name == "item_id" else items[name].take(kept) for name in items.column_names
    ]
    # A collection has columns without nulls, such as the hash of an image.
    return pa.table(
        columns, schema=pa.schema([field.with_nullable(True) for field in items.schema])
    )


def write_vectors(vectors: Any, removed: Array, file: Path) -> None:
    """Write vectors (N, d) as float16, with zeros for the removed items (N,)."""
    with file.open("wb") as opened:
        for start in range(0, len(vectors), BATCH):
            block = np.array(vectors[start : start + BATCH], dtype=np.float16)
            block[removed[start : start + BATCH]] = 0
            opened.write(block.tobytes())
