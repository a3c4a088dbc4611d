"""Region features against calls of torchvision with one image and one proposal at a time."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.ops import box_iou, roi_align

from bifocal.features.extractors import Regions

SMALL = {
    "num_classes": 6,
    "min_size": 64,
    "max_size": 96,
    "rpn_pre_nms_top_n_test": 60,
    "rpn_post_nms_top_n_test": 40,
}


def detector(**arguments: object) -> Regions:
    """A small detector with random weights that are large enough to give different boxes."""
    extractor = Regions(
        "fasterrcnn_mobilenet_v3_large_320_fpn",
        **{"regions": 5, "model_arguments": SMALL} | arguments,
    )
    torch.manual_seed(0)
    for name, weights in extractor.backbone.network.named_parameters():
        if weights.ndim > 1:
            nn.init.kaiming_normal_(weights)
            weights.mul_(0.05 if "pred" in name else 1.0)
    return extractor


def random_images() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in ((80, 60), (50, 90), (64, 64))
    ]


def by_hand(
    extractor: Regions, image: Image.Image
) -> tuple[list[list[float]], list[float], list[Tensor]]:
    """Boxes, scores and features after greedy suppression, in order of decreasing score."""
    model, heads = extractor.backbone.network, extractor.backbone.network.roi_heads
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)
    resized, _ = model.transform([pixels])
    maps = model.backbone(resized.tensors)
    proposals, _ = model.rpn(resized, maps)
    (height, width) = resized.image_sizes[0]
    candidates = []
    for proposal in proposals[0]:
        feature = heads.box_head(
            heads.box_roi_pool(maps, [proposal.unsqueeze(0)], resized.image_sizes)
        )
        logits, refinement = heads.box_predictor(feature)
        probabilities = logits.softmax(dim=1)[0].tolist()
        best = max(range(1, len(probabilities)), key=lambda c: probabilities[c])
        box = heads.box_coder.decode(refinement, [proposal.unsqueeze(0)])[0, best].clone()
        box[0::2], box[1::2] = box[0::2].clamp(0, width), box[1::2].clamp(0, height)
        candidates.append((probabilities[best], box))
    kept: list[tuple[float, Tensor]] = []
    for score, box in sorted(candidates, key=lambda pair: -pair[0]):
        if all(
            box_iou(box.unsqueeze(0), other.unsqueeze(0)).item() <= extractor.overlap
            for _, other in kept
        ):
            kept.append((score, box))
    features = [
        heads.box_head(heads.box_roi_pool(maps, [b.unsqueeze(0)], resized.image_sizes))[0]
        for _, b in kept
    ]
    sides = [width, height, width, height]
    relative = [
        [edge / side for edge, side in zip(b.tolist(), sides, strict=True)] for _, b in kept
    ]
    return relative, [score for score, _ in kept], features


@torch.inference_mode()
def test_regions_are_the_best_boxes_with_their_features() -> None:
    extractor = detector()
    for image in random_images():
        boxes, scores, features = by_hand(extractor, image)
        (regions,) = extractor.extract([extractor.preprocess(image)])
        assert regions.boxes is not None
        assert regions.scores is not None
        assert len(regions.features) == extractor.regions == 5 <= len(boxes)
        assert len(set(scores[:5])) == 5
        assert extractor.dim == regions.features.shape[1]
        assert regions.scores.tolist() == pytest.approx(scores[:5], rel=1e-4)
        torch.testing.assert_close(regions.boxes, torch.tensor(boxes[:5]), rtol=1e-3, atol=1e-4)
        expected = torch.stack(features[:5])
        rounding = (
            1e-5 * expected.abs().max().item()
        )  # of sums in float32 whose terms are as large as the features
        torch.testing.assert_close(regions.features, expected, rtol=1e-3, atol=rounding)
        assert (regions.boxes >= 0).all()
        assert (regions.boxes <= 1).all()


@torch.inference_mode()
def test_regions_below_min_score_are_dropped_down_to_min_regions() -> None:
    extractor = detector(regions=20, min_regions=20)
    pixels = extractor.preprocess(random_images()[0])
    (all_regions,) = extractor.extract([pixels])
    assert all_regions.scores is not None
    scores = all_regions.scores.tolist()
    extractor.min_score = (scores[6] + scores[7]) / 2
    for maximum, minimum, expected in ((20, 2, 7), (20, 7, 7), (20, 9, 9), (4, 2, 4)):
        extractor.regions, extractor.min_regions = maximum, minimum
        (regions,) = extractor.extract([pixels])
        assert len(regions.features) == expected


def test_regions_of_another_detector_are_an_error() -> None:
    with pytest.raises(ValueError, match="torchvision has no detector 'retinanet_resnet51_fpn'"):
        Regions("retinanet_resnet51_fpn")


ONE_STAGE = [
    ("retinanet_resnet50_fpn_v2", {"num_classes": 4, "min_size": 64, "max_size": 96}, 256),
    ("ssdlite320_mobilenet_v3_large", {"num_classes": 4}, 672),
]


@pytest.mark.parametrize(("name", "arguments", "dim"), ONE_STAGE)
@torch.inference_mode()
def test_regions_of_a_detector_without_proposals(
    name: str, arguments: dict[str, int], dim: int
) -> None:
    torch.manual_seed(0)
    extractor = Regions(name, regions=6, overlap=0.4, model_arguments=arguments)
    network = extractor.backbone.network
    for key, weights in network.named_parameters():
        if "classification_head" in key and weights.ndim > 1:
            nn.init.normal_(weights, std=0.1)
    image = random_images()[0]
    (regions,) = extractor.extract([extractor.preprocess(image)])
    assert regions.features.shape == (6, extractor.dim) == (6, dim)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    (found,) = network([pixels])
    kept: list[Tensor] = []
    for box in found["boxes"]:  # in order of decreasing score
        if all(box_iou(box[None], other[None]).item() <= 0.4 for other in kept):
            kept.append(box)
    assert regions.boxes is not None
    torch.testing.assert_close(
        regions.boxes * torch.tensor([80, 60, 80, 60]), torch.stack(kept[:6])
    )
    resized, _ = network.transform([pixels])
    (height, width), maps = resized.image_sizes[0], network.backbone(resized.tensors)
    if "retinanet" in name:
        maps = {
            level: network.head.classification_head.conv(features)
            for level, features in maps.items()
        }
    box = regions.boxes[0] * torch.tensor([width, height, width, height])
    candidates = [
        _bin_means(features[0], box, height)
        for features in maps.values()
        if features.shape[1] == dim
    ]
    assert (
        min((regions.features[0] - candidate).abs().max().item() for candidate in candidates) < 1e-4
    )


def _bin_means(features: Tensor, box: Tensor, height: int) -> Tensor:
    scale = 2 ** round(np.log2(features.shape[1] / height))
    pooled = roi_align(features[None], [box[None]], 7, spatial_scale=scale, sampling_ratio=2)
    return pooled.mean(dim=(0, 2, 3))
