"""Data that an evaluation should not trust: sentences that several images share, images that are in two splits."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

SIDE = 16
ALIKE = 0.995
"""Correlation of two thumbnails from which on they are called alike."""
BLOCK = 1024


class Pair(NamedTuple):
    """Two images that look the same: their ids, and the correlation of their thumbnails."""

    first: str
    second: str
    correlation: float


def shared_captions(captions: pd.DataFrame) -> pd.DataFrame:
    """Sentences that stand at more than one image, so that none of them is the only right answer.

    Args:
        captions: columns ``image_id`` and ``text``; case and spaces do not count.

    Returns:
        columns ``text`` and ``images``, how many have it, the most shared first.
    """
    text = captions["text"].str.lower().str.split().str.join(" ")
    counts = captions["image_id"].groupby(text).nunique()
    shared = counts[counts > 1].sort_values(ascending=False, kind="stable")
    return pd.DataFrame({"text": shared.index, "images": shared.to_numpy()})


def near_duplicates(
    first: Sequence[str],
    second: Sequence[str],
    read: Callable[[str], Image.Image],
    threads: int = 4,
) -> list[Pair]:
    """Pairs across two lists of images that look the same, the most alike first.

    Grey thumbnails of 16 x 16 pixels are compared by their correlation, which light and contrast do not change; it
    finds copies, other sizes and other compressions, not crops. An image without any contrast is like no other.

    Args:
        first, second: image ids.
        read: opens one.
    """
    with ThreadPoolExecutor(threads) as pool:
        left, right = (
            np.stack(list(pool.map(lambda name: _thumbnail(read(name)), names))) for names in (first, second)
        )
    pairs = []
    for start in range(0, len(left), BLOCK):
        correlation = left[start : start + BLOCK] @ right.T
        for row, column in np.argwhere(correlation >= ALIKE):
            pairs.append(Pair(first[start + row], second[column], float(correlation[row, column])))
    return sorted(pairs, key=lambda pair: (-pair.correlation, pair.first, pair.second))


def _thumbnail(image: Image.Image) -> NDArray[np.float32]:
    # Far fewer pixels to decode, where the format can.
    image.draft("L", (4 * SIDE, 4 * SIDE))
    grey = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32).ravel()
    grey = grey - grey.mean()
    norm = float(np.linalg.norm(grey))
    return grey / norm if norm > 1.0 else np.zeros_like(grey)
