"""Scores of single regions."""

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.image_encoders import BEANEncoder, LinearEncoder, MultiLevelEncoder
from bifocal.localization import PerRegionLocalizer
from tests.bifocal.localization.inputs import BACKBONE, draw_float32, regions


def test_per_region_score_equals_score_of_image_with_one_region() -> None:
    encoder, batch, texts = (
        LinearEncoder(3, 6).eval(),
        regions(),
        normalize(draw_float32(1, 2, 6), dim=1),
    )
    with torch.inference_mode():
        located = PerRegionLocalizer()(encoder, batch, texts)
        for image in range(2):
            for region in range(4):
                vector = encoder(
                    batch.features[image : image + 1, region : region + 1].float(),
                    torch.ones(1, 1).bool(),
                )
                assert located.scores[image, region] == pytest.approx(
                    float(vector[0] @ texts[image]), abs=1e-6
                )
    for unsupported in (MultiLevelEncoder(3, 6, levels=1), BEANEncoder(3, 6, maps=5, **BACKBONE)):
        with pytest.raises(ValueError, match=type(unsupported).__name__):
            PerRegionLocalizer()(unsupported.eval(), batch, texts)
