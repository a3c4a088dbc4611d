"""The sentence of 'bifocal where' for each kind of answer."""

import numpy as np
import pytest
from PIL import Image

from bifocal.search.trained_model import Location
from pipelines.app.where import describe


@pytest.mark.parametrize(
    ("probability", "present", "sentence"),
    [
        (0.29, False, "no 'carrot' in this image"),
        (
            0.31,
            True,
            "perhaps no 'carrot' in this image; the closest place is around 52% from the "
            "left, 45% from the top",
        ),
        (0.5, True, "guess: 'carrot' around 52% from the left, 45% from the top"),
        (None, True, "guess: 'carrot' around 52% from the left, 45% from the top"),
    ],
)
def test_a_place_below_one_half_is_not_called_a_guess(
    probability: float | None, present: bool, sentence: str
) -> None:
    location = Location(
        np.zeros((2, 2)), (0.52, 0.45), Image.new("RGB", (4, 4)), probability, present
    )
    assert describe("carrot", location) == sentence
