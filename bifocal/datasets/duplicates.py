"""Shared captions and near-duplicate images."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

SIDE = 16
DECODED_SIDE = 4 * SIDE
"""Pixels per side that suffice for a thumbnail: JPEG files can be decoded at a fraction of their resolution."""
MIN_CORRELATION = 0.995
"""Smallest correlation of the thumbnails of two near-duplicates."""
BLOCK = 1024


class DuplicatePair(NamedTuple):
    """Ids of two near-duplicates, and the correlation of their thumbnails."""

    first: str
    second: str
    correlation: float


def shared_captions(captions: pd.DataFrame) -> pd.DataFrame:
    """Return ``text`` and number of ``images`` of captions with several images, ignoring case and white space."""
    text = captions["text"].str.lower().str.split().str.join(" ")
    counts = captions["image_id"].groupby(text).nunique()
    shared = counts[counts > 1].sort_values(ascending=False, kind="stable")
    return pd.DataFrame({"text": shared.index, "images": shared.to_numpy()})


def near_duplicates(
    first: Sequence[str],
    second: Sequence[str],
    read: Callable[[str, int], Image.Image],
    threads: int = 4,
) -> list[DuplicatePair]:
    """Return pairs across two lists of images that look the same, by the correlation of gray 16 x 16 thumbnails.

    This finds copies in other sizes and compressions, not crops; ``read`` opens an image of at least this size.
    """
    with ThreadPoolExecutor(threads) as pool:
        left, right = (
            np.stack(list(pool.map(lambda image_id: _thumbnail(read(image_id, DECODED_SIDE)), image_ids)))
            for image_ids in (first, second)
        )
    pairs = []
    for start in range(0, len(left), BLOCK):
        correlation = left[start : start + BLOCK] @ right.T
        for row, column in np.argwhere(correlation >= MIN_CORRELATION):
            pairs.append(DuplicatePair(first[start + row], second[column], float(correlation[row, column])))
    return sorted(pairs, key=lambda pair: (-pair.correlation, pair.first, pair.second))


def _thumbnail(image: Image.Image) -> NDArray[np.float32]:
    """Return the pixels as a vector of mean 0 and norm 1; 0 without contrast."""
    gray = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32).ravel()
    gray = gray - gray.mean()
    norm = float(np.linalg.norm(gray))
    return gray / norm if norm > 1.0 else np.zeros_like(gray)
