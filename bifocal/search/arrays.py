"""Arrays in files."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def save_array(file: Path, array: NDArray[Any]) -> None:
    """Write ``array`` to ``file`` in the format of ``numpy.save``.

    ``numpy.save`` reports a full disk as "1024 requested and 992 written", without its reason.
    """
    with file.open("wb") as opened:
        np.save(_Writer(opened), array)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; ``combine_chunks`` copies a column that has one chunk already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class _Writer:
    """A file without a descriptor: numpy then calls ``write`` instead of C's ``fwrite``, whose ``errno`` it drops."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write
