"""Segmentation masks as text: ``counts`` of COCO's compressed run-length encoding, in column-major
order.

pycocotools is not used: it reads beyond its buffers when a string is damaged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Segmentation = list[list[float]] | dict[str, Any]
"""Polygons [x0, y0, x1, y1, ...] in pixels, or {"size": [height, width], "counts": run lengths or
their encoding}."""

_OFFSET, _BITS, _SIGN, _CONTINUES = 48, 5, 0x10, 0x20


def read_mask(segmentation: Segmentation, width: int, height: int) -> Mask:
    """Return the pixels (height, width) of one of COCO's segmentations."""
    if isinstance(segmentation, dict):
        return _decode_segmentation(segmentation, width, height)
    mask = np.zeros((height, width), dtype=bool)
    for polygon in segmentation:
        fill_polygon(mask, polygon)
    return mask


def encode_mask(mask: Mask) -> str:
    """Encode a mask (height, width)."""
    flat = mask.ravel(order="F")
    ends = np.flatnonzero(np.diff(flat)) + 1
    first = [0, 0] if flat[:1].any() else [0]
    runs = np.diff(np.concatenate([first, ends, [len(flat)]]))
    # From the fourth on, COCO stores the difference to the run before the last one.
    values = runs.copy()
    values[3:] -= runs[1:-2]
    digits = []
    active = np.ones(len(values), dtype=bool)
    while active.any():
        digit = values & (2**_BITS - 1)
        values = values >> _BITS
        more = active & (values != np.where(digit & _SIGN, -1, 0))
        digits.append(np.where(active, digit + _OFFSET + np.where(more, _CONTINUES, 0), 0))
        active = more
    text = np.stack(digits, axis=1).ravel() if digits else np.zeros(0, int)
    return text[text > 0].astype(np.uint8).tobytes().decode("ascii")


def decode_mask(encoded: str, width: int, height: int) -> Mask:
    """Decode a mask to (height, width)."""
    digits = np.array([ord(sign) - _OFFSET for sign in encoded], dtype=np.int64)
    if (
        not len(digits)
        or digits.min() < 0
        or digits.max() >= 2 * _CONTINUES
        or digits[-1] & _CONTINUES
    ):
        raise ValueError(f"{encoded[:40]!r} is not a mask in COCO's run-length encoding")
    lasts = np.flatnonzero((digits & _CONTINUES) == 0)
    starts = np.concatenate([[0], lasts[:-1] + 1])
    lengths = lasts - starts + 1
    if lengths.max() > 8:
        raise ValueError(f"{encoded[:40]!r} is not a mask in COCO's run-length encoding")
    shifts = _BITS * (np.arange(len(digits)) - np.repeat(starts, lengths))
    runs = np.add.reduceat((digits & (2**_BITS - 1)) << shifts, starts)
    runs -= np.where(digits[lasts] & _SIGN, 1 << (_BITS * lengths), 0)
    runs[1::2] = np.cumsum(runs[1::2])
    runs[2::2] = np.cumsum(runs[2::2])
    return _fill_runs(runs, width, height)


def fill_polygon(mask: Mask, polygon: Sequence[float]) -> None:
    """Set the pixels of ``mask`` whose centers (at .5) lie inside the polygon x0, y0, x1, y1, ...
    (even-odd rule)."""
    values = np.asarray(polygon, dtype=np.float64)
    if values.ndim != 1 or len(values) < 6 or len(values) % 2 or not np.isfinite(values).all():
        raise ValueError(f"polygon {str(polygon)[:80]}: expected at least three points x, y")
    height, width = mask.shape
    points = values.reshape(-1, 2)
    first = int(np.clip(np.floor(points[:, 1].min()), 0, height))
    last = int(np.clip(np.ceil(points[:, 1].max()), 0, height))
    centers = np.arange(first, last)[:, None] + 0.5
    (x0, y0), (x1, y1) = points.T, np.roll(points, -1, axis=0).T
    rows, edges = np.nonzero((y0 <= centers) != (y1 <= centers))
    x = x0[edges] + (centers[rows, 0] - y0[edges]) * (x1[edges] - x0[edges]) / (
        y1[edges] - y0[edges]
    )
    # Each edge toggles the pixels whose centers lie right of it.
    toggles = np.zeros((last - first, width + 1), dtype=bool)
    columns = np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)
    np.logical_xor.at(toggles, (rows, columns), True)
    mask[first:last] |= np.logical_xor.accumulate(toggles, axis=1)[:, :width]


def _decode_segmentation(segmentation: dict[str, Any], width: int, height: int) -> Mask:
    size, counts = segmentation["size"], segmentation["counts"]
    if list(size) != [height, width]:
        raise ValueError(f"segmentation of size {size}, expected [height, width] {[height, width]}")
    if isinstance(counts, str):
        return decode_mask(counts, width, height)
    return _fill_runs(np.asarray(counts, dtype=np.int64), width, height)


def _fill_runs(runs: NDArray[np.int64], width: int, height: int) -> Mask:
    if ((runs < 0) | (runs > width * height)).any() or runs.sum() != width * height:
        raise ValueError(
            f"run lengths of {runs.sum()} pixels, expected {width} x {height} = {width * height}"
        )
    filled: Mask = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(
        (height, width), order="F"
    )
    return filled
