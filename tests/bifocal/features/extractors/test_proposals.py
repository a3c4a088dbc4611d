"""Proposals: boxes of selective search, and features against RoIAlign as a loop."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torchvision.ops import box_iou, roi_align

from bifocal.features.extractors import Proposals
from bifocal.features.extractors.proposals import selective_search

pytest.importorskip("cv2.ximgproc")
SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}
OBJECTS = {"red": (10, 12, 50, 44), "blue": (60, 40, 110, 90), "green": (20, 60, 45, 92)}


def scene() -> Image.Image:
    image = Image.new("RGB", (128, 100), (128, 128, 128))
    for color, box in OBJECTS.items():
        ImageDraw.Draw(image).rectangle(box, fill=color)
    return image


def proposals(**arguments: object) -> Proposals:
    torch.manual_seed(0)
    return Proposals(
        **{"backbone": "resnet10t", "stage": 3, "size": 128, "model_arguments": SMALL} | arguments
    )


def bilinear(level: Tensor, y: float, x: float) -> Tensor:
    height, width = level.shape[1:]
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = (1 - (x - left)) * level[:, top, left] + (x - left) * level[:, top, right]
    lower = (1 - (x - left)) * level[:, bottom, left] + (x - left) * level[:, bottom, right]
    return (1 - (y - top)) * upper + (y - top) * lower


def pooled_by_hand(level: Tensor, box: list[float]) -> Tensor:
    """Mean of 7 x 7 bins; a bin is the mean of as many samples as it has cells, rounded up."""
    height, width = level.shape[1:]
    x0, y0, x1, y1 = (
        box[0] * width - 0.5,
        box[1] * height - 0.5,
        box[2] * width - 0.5,
        box[3] * height - 0.5,
    )
    across, down = max(1, int(np.ceil((x1 - x0) / 7))), max(1, int(np.ceil((y1 - y0) / 7)))
    samples = [
        bilinear(
            level,
            y0 + (row + (i + 0.5) / down) * (y1 - y0) / 7,
            x0 + (column + (j + 0.5) / across) * (x1 - x0) / 7,
        )
        for row in range(7)
        for column in range(7)
        for i in range(down)
        for j in range(across)
    ]
    return torch.stack(samples).mean(dim=0)


def test_proposals_cover_the_objects_and_are_deterministic() -> None:
    extractor = proposals()
    boxes, again = (extractor.preprocess(scene())[1] for _ in range(2))
    assert boxes.equal(again)
    assert boxes[0].tolist() == [0, 0, 1, 1]
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1).tolist()
    assert areas == sorted(areas, reverse=True)
    overlaps = box_iou(boxes, boxes) - torch.eye(len(boxes))
    assert overlaps.max() <= extractor.overlap + 1e-6
    objects = torch.tensor(list(OBJECTS.values())) / torch.tensor([128.0, 100.0, 128.0, 100.0])
    assert (box_iou(objects, boxes).max(dim=1).values > 0.6).all()
    few = proposals(regions=2).preprocess(scene())[1]
    assert few.equal(boxes[:2])


@torch.inference_mode()
def test_proposals_pool_the_mean_of_bilinear_samples() -> None:
    extractor = proposals()
    images = [scene(), scene().rotate(90, expand=True)]
    prepared = [extractor.preprocess(image) for image in images]
    for (pixels, boxes, _), regions in zip(prepared, extractor.extract(prepared), strict=True):
        level = extractor.backbone.feature_map(pixels.unsqueeze(0), 3)[0]
        assert regions.features.shape == (len(boxes), extractor.dim)
        for features, box in zip(regions.features, boxes.tolist(), strict=True):
            torch.testing.assert_close(features, pooled_by_hand(level, box), rtol=1e-3, atol=1e-4)


@torch.inference_mode()
def test_proposals_with_fc7_pass_the_bins_of_a_box_through_the_layers_before_the_classifier() -> (
    None
):
    extractor = proposals(
        backbone="vgg11", stage=4, size=64, head="fc7", model_arguments={"mlp_ratio": 0.01}
    )
    network = extractor.backbone.network
    assert (extractor.dim, extractor.backbone.network.feature_info[4]["reduction"]) == (4096, 16)
    truth = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 1.0, 1.0]])
    (regions,) = extractor.extract([extractor.preprocess(scene(), truth)])
    assert regions.truth == 2
    assert regions.boxes is not None
    assert regions.boxes[-2:].equal(truth)
    level = extractor.backbone.feature_map(extractor.preprocess(scene())[0].unsqueeze(0), 4)
    bins = roi_align(
        level, [truth[1:] * torch.tensor([level.shape[3], level.shape[2]] * 2)], 7, aligned=True
    )
    fc6 = torch.relu(
        bins.flatten(1) @ network.pre_logits.fc1.weight.flatten(1).T + network.pre_logits.fc1.bias
    )
    fc7 = torch.relu(fc6 @ network.pre_logits.fc2.weight.flatten(1).T + network.pre_logits.fc2.bias)
    torch.testing.assert_close(regions.features[-1], fc7[0], rtol=1e-3, atol=1e-4)


def test_selective_search_on_a_uniform_image_returns_the_whole_image() -> None:
    assert selective_search(np.full((40, 60, 3), 128, np.uint8)).tolist() == [[0, 0, 60, 40]]
