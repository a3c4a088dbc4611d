"""One file of a feature store: its layout, and opening it."""

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

METADATA = b"bifocal"


class StoreFile(NamedTuple):
    """One file of the store with n images; the arrays are views of the file's pages."""

    image_ids: list[str]
    features: NDArray[Any]  # (n, R, D)
    boxes: NDArray[np.float32]  # (n, R, 4)
    scores: NDArray[np.float32]  # (n, R)
    counts: NDArray[np.int32]  # (n,)
    metadata: dict[str, Any]
    pages: mmap.mmap


def feature_type(metadata: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the dtype of a store's features: float16, unless the metadata have ``dtype``, such as "uint8"."""
    name: str = metadata.get("dtype", "float16")
    return np.dtype(name)


def open_store_file(path: Path) -> StoreFile:
    """Map one file of a feature store to memory."""
    try:
        with path.open("rb") as file:
            # Not pa.memory_map: it has no madvise, which releases the pages.
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.py_buffer(pages))
        metadata = json.loads(reader.schema.metadata[METADATA])
        batch = reader.get_batch(0)
        count, regions, dim = batch.num_rows, metadata["regions"], metadata["dim"]

        def view(name: str, *shape: int) -> NDArray[Any]:
            values: NDArray[Any] = batch[name].values.to_numpy(zero_copy_only=True)
            return values.reshape(count, *shape)

        return StoreFile(
            image_ids=batch["image_id"].to_pylist(),
            features=view("features", regions, dim),
            boxes=view("boxes", regions, 4),
            scores=view("scores", regions),
            counts=batch["regions"].to_numpy(),
            metadata=metadata,
            pages=pages,
        )
    except (pa.ArrowInvalid, pa.ArrowIndexError, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is not a complete file of a feature store ({error}): delete it and extract the features again"
        ) from error


def check_same_metadata(path: Path, metadata: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless the metadata of the file ``path`` are as expected; the message names a key."""
    for key in sorted(metadata.keys() | expected.keys()):
        if metadata.get(key) != expected.get(key):
            raise ValueError(
                f"{path} holds other features: its {key} is {metadata.get(key)!r}, expected {expected.get(key)!r}; "
                "delete the files of the other extraction"
            )
