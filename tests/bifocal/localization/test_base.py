"""Region scores and encoders without a localizer."""

import pytest
import torch

from bifocal.image_encoders import LinearEncoder
from bifocal.localization import region_scores


def test_linear_encoder_has_no_localizer_of_its_own() -> None:
    assert LinearEncoder(3, 6).localizer() is None


def test_invalid_input_is_rejected() -> None:
    with pytest.raises(ValueError, match="one text"):
        region_scores(torch.zeros(1, 4, 3), torch.zeros(2, 3))
