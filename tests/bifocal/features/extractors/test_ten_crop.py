"""Ten-crop features against ten crops cut and called one by one."""

import numpy as np
import pytest
import torch
from PIL import Image

from bifocal.features.extractors import TenCrop

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}


def test_the_mean_of_ten_calls() -> None:
    torch.manual_seed(0)
    kind = TenCrop("resnet10t", size=80, crop=64, model_arguments=SMALL)
    random = np.random.default_rng(0)
    images = [Image.fromarray(random.integers(0, 256, (side, 70, 3), dtype=np.uint8)) for side in (60, 90)]
    found = kind.extract([kind.preprocess(image) for image in images])
    config, network = kind.backbone.network.pretrained_cfg, kind.backbone.network
    for image, (features, boxes, _) in zip(images, found, strict=True):
        square = np.asarray(image.resize((80, 80), Image.Resampling.BICUBIC), dtype=np.float64) / 255
        expected = torch.zeros(32)
        for x, y in ((0, 0), (16, 0), (0, 16), (16, 16), (8, 8)):
            crop = square[y : y + 64, x : x + 64]
            for view in (crop, crop[:, ::-1]):
                inputs = (view - np.array(config["mean"])) / np.array(config["std"])
                expected += network(torch.from_numpy(inputs).float().permute(2, 0, 1).unsqueeze(0))[0] / 10
        assert features.shape == (kind.regions, kind.dim) == (1, 32)
        torch.testing.assert_close(features[0], expected, rtol=1e-4, atol=1e-5)
        assert boxes is not None
        assert boxes.tolist() == [[0, 0, 1, 1]]


def test_vgg_gives_fc7() -> None:
    with torch.device("meta"):
        assert TenCrop().dim == 4096


def test_a_crop_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="crops of 300 pixels do not fit into 256"):
        TenCrop(crop=300)
