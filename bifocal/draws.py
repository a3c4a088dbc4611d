"""Random draws from a collection that stay: other items that come or go change no item's draw."""

import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def positions(names: Iterable[object], key: object) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each name, by a hash with ``key``, equal on all machines."""
    keyed = blake2b(digest_size=8, key=str(key).encode()[:64])
    numbers = []
    for name in names:
        digest = keyed.copy()
        # macOS decomposes the accents of file names.
        digest.update(unicodedata.normalize("NFC", str(name)).encode(errors="surrogatepass"))
        numbers.append(int.from_bytes(digest.digest()) >> 11)
    return np.array(numbers, dtype=np.float64) / 2**53


def drawn_rows(names: Iterable[object], count: int, key: object) -> list[int]:
    """Return the rows of the ``count`` names with the lowest positions, in their order.

    A name more or less changes at most one of them.
    """
    return sorted(np.argsort(positions(names, key), kind="stable")[:count].tolist())


def drawn(names: Sequence[str], count: int, key: object) -> list[str]:
    """Return the ``count`` names with the lowest positions, in their order."""
    return [names[row] for row in drawn_rows(names, count, key)]
