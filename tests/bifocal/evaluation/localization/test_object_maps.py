"""True masks of objects."""

import numpy as np

from bifocal.datasets.formats.masks import encode_mask
from bifocal.evaluation.localization.object_maps import true_mask


def test_true_mask_is_segmentation_or_boxes() -> None:
    left = np.zeros((32, 64), dtype=bool)
    left[:, :16] = True
    right_box = np.array([[32.0, 0, 64, 32]])
    assert true_mask(encode_mask(left), right_box, 64, 32).sum(dim=0).tolist() == [64] * 16 + [0] * 48
    assert true_mask(None, right_box, 64, 32).sum(dim=0).tolist() == [0] * 32 + [64] * 32
