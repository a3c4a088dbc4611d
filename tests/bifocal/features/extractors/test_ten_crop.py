"""Ten-crop features against one network call per crop."""

import numpy as np
import pytest
import torch
from PIL import Image

from bifocal.features.extractors import TenCrop

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}


def test_ten_crop_is_the_mean_of_ten_calls() -> None:
    torch.manual_seed(0)
    extractor = TenCrop("resnet10t", size=80, crop=64, model_arguments=SMALL)
    random = np.random.default_rng(0)
    images = [
        Image.fromarray(random.integers(0, 256, (side, 70, 3), dtype=np.uint8)) for side in (60, 90)
    ]
    extracted = extractor.extract([extractor.preprocess(image) for image in images])
    config, network = extractor.backbone.network.pretrained_cfg, extractor.backbone.network
    for image, (features, boxes, *_) in zip(images, extracted, strict=True):
        square = (
            np.asarray(image.resize((80, 80), Image.Resampling.BICUBIC), dtype=np.float64) / 255
        )
        expected = torch.zeros(32)
        for x, y in ((0, 0), (16, 0), (0, 16), (16, 16), (8, 8)):
            crop = square[y : y + 64, x : x + 64]
            for view in (crop, crop[:, ::-1]):
                inputs = (view - np.array(config["mean"])) / np.array(config["std"])
                expected += (
                    network(torch.from_numpy(inputs).float().permute(2, 0, 1).unsqueeze(0))[0] / 10
                )
        assert features.shape == (extractor.regions, extractor.dim) == (1, 32)
        torch.testing.assert_close(features[0], expected, rtol=1e-4, atol=1e-5)
        assert boxes is not None
        assert boxes.tolist() == [[0, 0, 1, 1]]


def test_ten_crop_of_vgg_has_the_dimension_of_fc7() -> None:
    with torch.device("meta"):
        assert TenCrop().dim == 4096


def test_ten_crop_larger_than_the_image_is_an_error() -> None:
    with pytest.raises(ValueError, match="crops of 300 pixels do not fit into 256"):
        TenCrop(crop=300)
