"""Limits of a request: each refuses the first input above it, and names the variable that changes
it."""

import base64
import sys
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bifocal.onnx.limits import Limits


def image(width: int, height: int) -> str:
    buffer = BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_inputs_at_the_limits_are_accepted() -> None:
    limits = Limits(rows=2, characters=3, image_bytes=100, pixels=12, total_pixels=24, regions=2)
    limits.check_rows(2)
    limits.check_sentences({0: "dog", 4: ""})
    files = limits.read_images({1: image(4, 3), 2: base64.b64decode(image(3, 4))})
    assert files == {
        row: base64.b64decode(image(*size)) for row, size in {1: (4, 3), 2: (3, 4)}.items()
    }
    limits.check_features({3: [[1.0, 2.0], np.array([3, 4])]}, width=2)


@pytest.mark.parametrize(
    ("check", "values", "message"),
    [
        (
            "check_rows",
            3,
            "the request has 3 rows, at most 2 are accepted (BIFOCAL_MAX_ROWS of the server)",
        ),
        (
            "check_sentences",
            {7: "dogs"},
            "the text of row 7 has 4 characters, at most 3 are accepted",
        ),
        ("check_sentences", {7: 5}, "row 7 has int as text"),
        (
            "read_images",
            {1: "A" * 200},
            "the image of row 1 cannot be read: the file has 150 bytes",
        ),
        ("read_images", {1: image(4, 4)}, "4 x 4 pixels, more than max_pixels 12"),
        (
            "read_images",
            {row: image(4, 3) for row in range(3)},
            "the images up to row 2 have 36 pixels",
        ),
        ("read_images", {1: "no base64!"}, "not base64"),
        (
            "read_images",
            {1: base64.b64encode(b"no image").decode()},
            "not an image in a supported format",
        ),
    ],
)
def test_larger_inputs_are_refused(check: str, values: Any, message: str) -> None:
    limits = Limits(rows=2, characters=3, image_bytes=100, pixels=12, total_pixels=24)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        getattr(limits, check)(values)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "features",
    [
        [],
        [[]],
        [1.0, 2.0],
        [[1.0, 2.0], [3.0]],
        [["a", "b"]],
        [[1.0]],
        [[1.0, float("nan")]],
        3 * [[1.0, 2.0]],
    ],
)
def test_features_that_are_no_finite_matrix_are_refused(features: Any) -> None:
    with pytest.raises(ValueError, match="row 0 has"):
        Limits(regions=2).check_features({0: features}, width=2)


def test_variables_replace_the_limits_and_spark_has_none_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits.of_process({"BIFOCAL_MAX_ROWS": "7", "BIFOCAL_MAX_PIXELS": "0"})
    assert limits == Limits(rows=7, pixels=0)
    limits.read_images({0: image(40, 30)})
    with pytest.raises(ValueError, match="BIFOCAL_MAX_ROWS is '-1', expected a number"):
        Limits.of_process({"BIFOCAL_MAX_ROWS": "-1"})
    monkeypatch.setitem(sys.modules, "pyspark.worker", sys)
    Limits.of_process({}).check_rows(10**6)
