"""Heatmaps as pictures."""

import base64
import json
from io import BytesIO

import numpy as np
from PIL import Image

from bifocal.onnx.heatmaps import SIDE
from bifocal.onnx.pointing.phrases import Phrase
from bifocal.serving.service.models import Heatmap


def test_the_opacity_of_a_heatmap_is_its_cube_and_its_point_the_peak() -> None:
    values = np.zeros((SIDE, SIDE), np.float32)
    values[8:24, 40:56] = 1
    heatmap = Heatmap(Phrase("star", 0, 4), values)
    assert np.allclose(heatmap.point, (48 / SIDE, 16 / SIDE), atol=1 / SIDE)
    header, _, encoded = heatmap.data_url().partition(",")
    assert header == "data:image/png;base64"
    with Image.open(BytesIO(base64.b64decode(encoded))) as image:
        opacity = np.asarray(image.getchannel("A"))
    assert opacity[16, 48] == 255
    assert opacity[50, 10] == 0
    assert json.dumps(heatmap.point)
