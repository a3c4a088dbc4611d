"""Principal components of data that is read block by block and never in memory at once."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def streaming_pca(
    blocks: Callable[[], Iterable[Array]], components: int, seed: int, oversample: int = 10
) -> tuple[Array, Array]:
    """Return the mean (D,) and the leading components (D, k), by a randomized range finder and a Rayleigh-Ritz step.

    Halko, Martinsson, Tropp, SIAM Review 2011, algorithms 4.3 (one power) and 5.3; the data (n, D) are read three
    times, block by block. A lower rank gives fewer components.
    """
    total, count = np.zeros(0), 0
    for block in blocks():
        total = block.sum(axis=0, dtype=np.float64) + (total if count else 0)
        count += len(block)
    mean: Array = (total / count).astype(np.float32)
    components = min(components, count - 1, len(mean))
    width = min(components + oversample, len(mean))
    start = np.random.default_rng(seed).standard_normal((len(mean), width), dtype=np.float32)
    image = np.zeros_like(start)
    for block in blocks():
        centered = block - mean
        image += centered.T @ (centered @ start)
    basis = np.linalg.qr(image)[0]
    small = np.zeros((width, width))
    for block in blocks():
        projected = (block - mean) @ basis
        small += projected.T @ projected
    _, vectors = np.linalg.eigh(small)
    return mean, np.ascontiguousarray(basis @ vectors[:, ::-1][:, :components].astype(np.float32))
