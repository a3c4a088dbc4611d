"""Heatmaps of exported models: numpy on the graphs' outputs gives the scores of the torch
localizer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import (
    BEANEncoder,
    LinearEncoder,
    MultiLevelEncoder,
    ProjectionEncoder,
    SMILEEncoder,
)
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization import BEANHeatmap, MultiLevelHeatmap, SmoothedActivations, rasterize
from bifocal.localization.attention import AttentionOptions
from bifocal.localization.base import Localizer
from bifocal.onnx import heatmaps
from bifocal.onnx.encoders import ImageGraph
from bifocal.onnx.heatmaps import SCORES, WITH_BOXES, HeatmapModel, square_of

DIM, INPUT = 12, 7


def multi_level(**options: Any) -> MultiLevelHeatmap:
    localizer = MultiLevelHeatmap()
    localizer.attention = AttentionOptions(**options)
    return localizer


CASES: list[tuple[ImageEncoder, Localizer | None]] = [
    (SMILEEncoder(INPUT, DIM), None),
    (SMILEEncoder(INPUT, DIM, ablation="mean"), None),
    (BEANEncoder(INPUT, DIM, maps=5, backbone=None), BEANHeatmap(k=4)),
    (BEANEncoder(INPUT, DIM, maps=5, backbone=None), None),
    (ProjectionEncoder(INPUT, DIM, hidden=6), None),
    (LinearEncoder(INPUT, DIM), SmoothedActivations(sigma=0.4, center=0.7)),
    (LinearEncoder(INPUT, DIM), SmoothedActivations(sigma=0.0, center=0.0)),
    (MultiLevelEncoder(INPUT, DIM, levels=2), None),
    (MultiLevelEncoder(INPUT, DIM, levels=2), multi_level(unit_sentence=True)),
    (MultiLevelEncoder(INPUT, DIM, levels=2), multi_level(softmax=True, sentence_level=1)),
]


@pytest.mark.parametrize(("encoder", "localizer"), CASES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**16))
def test_numpy_gives_the_scores_of_the_localizer(
    encoder: ImageEncoder, localizer: Localizer | None, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    localizer = localizer or encoder.eval().localizer()
    assert localizer is not None
    cells = 6 * encoder.levels_per_image
    boxes = cell_boxes(2, 3).repeat(encoder.levels_per_image, 1).expand(3, -1, -1)
    regions = RegionBatch(
        torch.randn(3, cells, INPUT, generator=generator),
        torch.ones(3, cells, dtype=torch.bool),
        boxes,
    )
    texts = normalize(torch.randn(3, DIM, generator=generator), dim=1)
    served = localizer.served()
    assert served is not None
    with torch.inference_mode():
        encoded = localizer.encode(encoder.eval(), regions)
        expected = localizer.score(encoded, texts)
    for row in range(3):
        arguments = dict(served.arguments)
        if served.scores in WITH_BOXES:
            arguments["boxes"] = boxes[row].numpy()
        scores = SCORES[served.scores](
            encoded.vectors[row].numpy(), texts[row].numpy(), **arguments
        )
        np.testing.assert_allclose(scores, expected.scores[row].numpy(), atol=1e-5)
        heatmap = heatmaps.rasterize(scores, expected.boxes[row].numpy(), 11)
        np.testing.assert_array_equal(
            heatmap, rasterize(torch.from_numpy(scores), expected.boxes[row], 11, 11)
        )


def test_a_model_without_localizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"has no localizer\.json: the model has no localizer"
    ):
        HeatmapModel(tmp_path, ImageGraph.__new__(ImageGraph))


def test_boxes_of_a_crop_are_relative_to_the_image() -> None:
    preprocessing = {"size": 16, "scaled": 20, "interpolation": "bicubic"}
    # Resized to 30 x 20; the central square of 16 pixels begins at (7, 2).
    assert square_of(90, 60, preprocessing) == pytest.approx((7 / 30, 2 / 20, 23 / 30, 18 / 20))
    assert square_of(90, 60, {"size": 16, "interpolation": "bicubic"}) == (0, 0, 1, 1)
