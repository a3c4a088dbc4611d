"""Scores of SMILE's regions."""

import torch
from torch.nn.functional import normalize

from bifocal.image_encoders import SMILEEncoder
from bifocal.localization import SMILERegions
from tests.bifocal.localization.inputs import batch, draw


def test_attended_smile_scores_sum_to_score_of_image() -> None:
    encoder, regions = SMILEEncoder(3, 6).eval(), batch(3)
    texts = normalize(draw(5, 2, 6).float(), dim=1)
    with torch.inference_mode():
        parts = SMILERegions(attended=True)(encoder, regions, texts).scores
        pooled = normalize(encoder.convolution(regions.features.float()), dim=2)
        whole = (encoder.weights(pooled, regions.mask) * pooled).sum(dim=1)
    torch.testing.assert_close(
        parts.masked_fill(~regions.mask, 0).sum(dim=1), (whole * texts).sum(dim=1)
    )
