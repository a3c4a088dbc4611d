"""Masks against loops: pixel by pixel, digit by digit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.formats.masks import decode_mask, encode_mask, fill_polygon, read_mask

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 12))


def draw_mask(shape: tuple[int, int], seed: int, density: float) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < density


def run_lengths(mask: np.ndarray) -> list[int]:
    """Runs of 0 and 1 in column-major order, beginning with 0."""
    runs, value = [0], False
    for column in range(mask.shape[1]):
        for row in range(mask.shape[0]):
            if bool(mask[row, column]) != value:
                runs.append(0)
                value = not value
            runs[-1] += 1
    return runs


def compress(runs: list[int]) -> str:
    """COCO's rleToString, in its order of operations."""
    text = ""
    for index, run in enumerate(runs):
        value = run - runs[index - 2] if index > 2 else run
        more = True
        while more:
            digit = value & 0x1F
            value >>= 5
            more = value != -1 if digit & 0x10 else value != 0
            text += chr((digit | 0x20 if more else digit) + 48)
    return text


def inside(x: float, y: float, polygon: list[float]) -> bool:
    """Even-odd rule: count the edges that cross the ray from (x, y) to the left."""
    crossings = 0
    points = list(zip(polygon[::2], polygon[1::2], strict=True))
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
        if (y0 <= y) != (y1 <= y) and x0 + (y - y0) * (x1 - x0) / (y1 - y0) <= x:
            crossings += 1
    return crossings % 2 == 1


@given(shape=SHAPES, seed=st.integers(0, 10**6), density=st.floats(0, 1))
def test_encoding_is_cocos_and_decodes_to_the_same_mask(shape, seed, density):
    mask = draw_mask(shape, seed, density)
    encoded = encode_mask(mask)
    assert encoded == compress(run_lengths(mask))
    np.testing.assert_array_equal(decode_mask(encoded, width=shape[1], height=shape[0]), mask)


def test_long_runs_are_encoded():
    mask = np.zeros((900, 1100), dtype=bool)
    mask[450:, 3:1000] = True
    assert encode_mask(mask) == compress(run_lengths(mask))
    np.testing.assert_array_equal(decode_mask(encode_mask(mask), width=1100, height=900), mask)


@given(
    shape=SHAPES,
    corners=st.lists(
        st.floats(-4, 16, allow_subnormal=False).map(lambda value: round(value, 2)),
        min_size=6,
        max_size=16,
    ),
)
def test_polygon_covers_the_pixels_with_their_center_inside(shape, corners):
    polygon = corners[: len(corners) // 2 * 2]
    mask = np.zeros(shape, dtype=bool)
    fill_polygon(mask, polygon)
    expected = [
        [inside(column + 0.5, row + 0.5, polygon) for column in range(shape[1])]
        for row in range(shape[0])
    ]
    np.testing.assert_array_equal(mask, np.array(expected))


def test_union_covers_polygons_run_lengths_and_compressed_strings():
    square = [1, 1, 3, 1, 3, 3, 1, 3]  # pixels 1 and 2 in both directions
    corner = draw_mask((4, 5), 0, 0)
    corner[3, 4] = True
    runs = {"size": [4, 5], "counts": run_lengths(corner)}
    encoded = {"size": [4, 5], "counts": compress(run_lengths(draw_mask((4, 5), 1, 0.3)))}
    parts = [[square, [0, 0, 1, 0, 1, 1, 0, 1]], runs, encoded]
    union = np.logical_or.reduce([read_mask(part, 5, 4) for part in parts])
    expected = corner | draw_mask((4, 5), 1, 0.3)
    expected[1:3, 1:3] = expected[0, 0] = True
    np.testing.assert_array_equal(union, expected)


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ([[0, 0, 1, 1]], "at least three points"),
        ([[0, 0, 1, 0, 1, 1, 0]], "at least three points"),
        ([[0, 0, 1, 0, float("nan"), 1]], "at least three points"),
        ({"size": [5, 4], "counts": [20]}, r"size \[5, 4\], expected \[height, width\] \[4, 5\]"),
        ({"size": [4, 5], "counts": [21]}, "run lengths of 21 pixels, expected 5 x 4 = 20"),
        ({"size": [4, 5], "counts": [-1, 21]}, "run lengths of 20 pixels"),
        ({"size": [4, 5], "counts": ""}, "is not a mask"),
        ({"size": [4, 5], "counts": "P"}, "is not a mask"),
        ({"size": [4, 5], "counts": "P" * 9 + "0"}, "is not a mask"),
        ({"size": [4, 5], "counts": "ü"}, "is not a mask"),
        ({"size": [4, 5], "counts": "abc"}, "is not a mask|run lengths"),
        ({"size": [4, 5], "counts": "22"}, "run lengths of 4 pixels"),
    ],
)
def test_invalid_segmentation_is_rejected(segmentation, message):
    with pytest.raises(ValueError, match=message):
        read_mask(segmentation, 5, 4)
