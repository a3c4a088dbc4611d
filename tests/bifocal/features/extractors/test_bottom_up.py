"""BottomUp against the published definition; its weights are random, because the published ones are
not at hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bifocal.backbones.detectors.bottom_up import (
    BottomUpNetwork,
    anchor_grid,
    clip,
    convert_bottom_up,
    decode,
    resize,
)
from bifocal.features.extractors import BottomUp
from bifocal.features.extractors.bottom_up import class_scores
from bifocal.training.weights import FromFile

SMALL: dict[str, Any] = {"blocks": [1, 1, 1, 1], "width": 4, "classes": 5}
FASTER_RCNN_ANCHORS = [
    [-83, -39, 100, 56],
    [-175, -87, 192, 104],
    [-359, -183, 376, 200],
    [-55, -55, 72, 72],
    [-119, -119, 136, 136],
    [-247, -247, 264, 264],
    [-35, -79, 52, 96],
    [-79, -167, 96, 184],
    [-167, -343, 184, 360],
]
"""Anchors of scales 8, 16 and 32, as the code of Faster R-CNN lists them; its pixels count from
1."""


def test_anchors_are_those_of_faster_rcnn() -> None:
    grid = anchor_grid(2, 3).view(2, 3, 3, 4, 4)
    assert (grid[0, 0, :, 1:].reshape(9, 4) + 1).tolist() == FASTER_RCNN_ANCHORS
    assert (grid[1, 2] - grid[0, 0]).unique(dim=0).view(-1, 4)[0].tolist() == [32, 16, 32, 16]


def test_decoded_boxes_follow_the_definition() -> None:
    torch.manual_seed(0)
    anchors = torch.tensor([[0.0, 0, 15, 31], [-8, 4, 39, 20]])
    deltas = torch.tensor([[0.1, -0.2, 0.5, -0.5], [0.0, 0.3, 9.0, 0.1]])
    for (x0, y0, x1, y1), (dx, dy, dw, dh), box in zip(
        anchors.tolist(), deltas.tolist(), decode(anchors, deltas).tolist(), strict=True
    ):
        width, height = x1 - x0 + 1, y1 - y0 + 1
        x, y = x0 + 0.5 * width + dx * width, y0 + 0.5 * height + dy * height
        w, h = (
            math.exp(min(d, math.log(1000 / 16))) * side for d, side in ((dw, width), (dh, height))
        )
        assert box == pytest.approx([x - w / 2, y - h / 2, x + w / 2, y + h / 2], rel=1e-5)
    assert clip(torch.tensor([[-3.0, 5, 99, 99]]), height=20, width=30).tolist() == [[0, 5, 29, 19]]


def test_resize_is_that_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    pixels, scale = resize(torch.from_numpy(image).permute(2, 0, 1), shorter=60, longer=100)
    mean = np.array([[[102.9801, 115.9465, 122.7717]]])
    expected = cv2.resize(
        image[:, :, ::-1] - mean, None, fx=1.25, fy=1.25, interpolation=cv2.INTER_LINEAR
    )
    assert scale == 1.25
    np.testing.assert_allclose(pixels[0].permute(1, 2, 0).numpy(), expected, atol=1e-2)
    assert resize(torch.zeros(3, 20, 80, dtype=torch.uint8), 60, 100)[0].shape == (1, 3, 25, 100)


def greedy(boxes: list[list[float]], scores: list[float], overlap: float) -> list[int]:
    """Non-maximum suppression of boxes that include their last pixels."""

    def area(x0: float, y0: float, x1: float, y1: float) -> float:
        return max(0.0, x1 - x0 + 1) * max(0.0, y1 - y0 + 1)

    kept: list[int] = []
    for row in sorted(range(len(boxes)), key=lambda row: -scores[row]):
        for other in kept:
            a, b = boxes[row], boxes[other]
            shared = area(max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
            if shared / (area(*a) + area(*b) - shared) > overlap:
                break
        else:
            kept.append(row)
    return kept


@pytest.mark.parametrize("seed", range(3))
def test_score_of_a_region_is_its_best_class_after_the_suppression(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    corners = 40 * torch.rand(12, 2, generator=generator)
    boxes = torch.cat([corners, corners + 5 + 30 * torch.rand(12, 2, generator=generator)], dim=1)
    probabilities = torch.rand(12, 6, generator=generator)
    expected = [0.0] * 12
    for column in range(1, 6):
        for row in greedy(boxes.tolist(), probabilities[:, column].tolist(), 0.3):
            expected[row] = max(expected[row], probabilities[row, column].item())
    assert class_scores(boxes, probabilities).tolist() == pytest.approx(expected)
    assert expected != pytest.approx(probabilities[:, 1:].amax(dim=1).tolist())


def published_names(network: BottomUpNetwork) -> dict[str, Tensor]:
    """Return the state of a network by the names of the published checkpoint, with the heads that
    we do not use."""
    prefixes = {"rpn": "proposal_generator.rpn_head", "res5": "roi_heads.res5"}
    prefixes["cls_score"] = "roi_heads.box_predictor.cls_score"
    state = {}
    for name, tensor in network.state_dict().items():
        first, _, rest = name.partition(".")
        state[f"{prefixes[first]}.{rest}" if first in prefixes else f"backbone.{name}"] = tensor
    for name in (
        "box_predictor.bbox_pred.weight",
        "box_predictor.attr_linear1.bias",
        "box_predictor.cls_embed.weight",
    ):
        state[f"roi_heads.{name}"] = torch.zeros(2)
    return state | {"proposal_generator.anchor_generator.cell_anchors.0": torch.zeros(12, 4)}


def test_network_has_the_shapes_of_the_published_one() -> None:
    with torch.device("meta"):
        state = published_names(BottomUpNetwork())
    shapes = {
        "backbone.stem.conv1.weight": (64, 3, 7, 7),
        "backbone.res2.0.shortcut.weight": (256, 64, 1, 1),
        "backbone.res3.3.conv2.weight": (128, 128, 3, 3),
        "backbone.res4.22.conv3.norm.running_var": (1024,),
        "proposal_generator.rpn_head.conv.weight": (512, 1024, 3, 3),
        "proposal_generator.rpn_head.objectness_logits.weight": (24, 512, 1, 1),
        "proposal_generator.rpn_head.anchor_deltas.bias": (48,),
        "roi_heads.res5.0.shortcut.norm.weight": (2048,),
        "roi_heads.res5.2.conv1.weight": (512, 2048, 1, 1),
        "roi_heads.box_predictor.cls_score.weight": (1601, 2048),
    }
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    assert not any(
        name.startswith(("backbone.res4.23", "backbone.res5", "backbone.res2.1.shortcut"))
        for name in state
    )


def test_converted_checkpoint_gives_the_features_of_the_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained, extractor = (BottomUp(regions=6, size=96, model_arguments=SMALL) for _ in range(2))
    torch.save(
        {"model": published_names(trained.backbone.network), "iteration": 320000},
        tmp_path / "r101.pth",
    )
    small = BottomUpNetwork(**SMALL)
    assert convert_bottom_up(tmp_path / "r101.pth", tmp_path / "r101.safetensors", small) == len(
        small.state_dict()
    )
    FromFile(tmp_path / "r101.safetensors").load(extractor.backbone)
    image = torch.randint(0, 256, (3, 80, 120), dtype=torch.uint8)
    (expected,), (regions,) = trained.extract([image]), extractor.extract([image])
    assert regions.features.equal(expected.features)
    assert regions.boxes is not None
    assert regions.scores is not None
    assert len(regions.features) == 6
    assert regions.scores.equal(regions.scores.sort(descending=True).values)
    assert (regions.boxes[:, :2] < regions.boxes[:, 2:]).all()


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, ("1/0",))


def test_checkpoint_with_code_or_of_another_network_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.safetensors"
    torch.save({"model": {"weight": Code()}}, tmp_path / "code.pth")
    with pytest.raises(ValueError, match="is refused: it is not a checkpoint with only tensors"):
        convert_bottom_up(tmp_path / "code.pth", target, BottomUpNetwork(**SMALL))
    torch.save({"model": published_names(BottomUpNetwork(**SMALL))}, tmp_path / "small.pth")
    with pytest.raises(ValueError, match=r"of another shape|missing"):
        convert_bottom_up(tmp_path / "small.pth", target, BottomUpNetwork(**SMALL | {"classes": 7}))
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="holds no named weights"):
        convert_bottom_up(tmp_path / "list.pth", target, BottomUpNetwork(**SMALL))
    assert not target.exists()
