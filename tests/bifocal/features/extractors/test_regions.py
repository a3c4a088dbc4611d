"""Region features against the calls of torchvision, one image and one proposal at a time."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.ops import box_iou

from bifocal.features.extractors import Regions

SMALL = {
    "num_classes": 6,
    "min_size": 64,
    "max_size": 96,
    "rpn_pre_nms_top_n_test": 60,
    "rpn_post_nms_top_n_test": 40,
}


def detector(**arguments: object) -> Regions:
    """A small detector whose random weights are large enough to tell one box from another."""
    kind = Regions("fasterrcnn_mobilenet_v3_large_320_fpn", **{"regions": 5, "model_arguments": SMALL} | arguments)
    torch.manual_seed(0)
    for name, weights in kind.backbone.network.named_parameters():
        if weights.ndim > 1:
            nn.init.kaiming_normal_(weights)
            weights.mul_(0.05 if "pred" in name else 1.0)
    return kind


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in ((80, 60), (50, 90), (64, 64))
    ]


def by_hand(kind: Regions, image: Image.Image) -> tuple[list[list[float]], list[float], list[Tensor]]:
    """Boxes, scores and features of the survivors of greedy suppression, in the order of their scores."""
    model, heads = kind.backbone.network, kind.backbone.network.roi_heads
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)
    resized, _ = model.transform([pixels])
    maps = model.backbone(resized.tensors)
    proposals, _ = model.rpn(resized, maps)
    (height, width) = resized.image_sizes[0]
    found = []
    for proposal in proposals[0]:
        feature = heads.box_head(heads.box_roi_pool(maps, [proposal.unsqueeze(0)], resized.image_sizes))
        logits, refinement = heads.box_predictor(feature)
        probabilities = logits.softmax(dim=1)[0].tolist()
        best = max(range(1, len(probabilities)), key=lambda c: probabilities[c])
        box = heads.box_coder.decode(refinement, [proposal.unsqueeze(0)])[0, best].clone()
        box[0::2], box[1::2] = box[0::2].clamp(0, width), box[1::2].clamp(0, height)
        found.append((probabilities[best], box))
    kept: list[tuple[float, Tensor]] = []
    for score, box in sorted(found, key=lambda pair: -pair[0]):
        if all(box_iou(box.unsqueeze(0), other.unsqueeze(0)).item() <= kind.overlap for _, other in kept):
            kept.append((score, box))
    features = [heads.box_head(heads.box_roi_pool(maps, [b.unsqueeze(0)], resized.image_sizes))[0] for _, b in kept]
    sides = [width, height, width, height]
    relative = [[edge / side for edge, side in zip(b.tolist(), sides, strict=True)] for _, b in kept]
    return relative, [score for score, _ in kept], features


@torch.inference_mode()
def test_regions_are_the_best_boxes_and_their_features() -> None:
    kind = detector()
    for image in pictures():
        boxes, scores, features = by_hand(kind, image)
        (found,) = kind.extract([kind.preprocess(image)])
        assert found.boxes is not None
        assert found.scores is not None
        assert len(found.features) == kind.regions == 5 <= len(boxes)
        assert len(set(scores[:5])) == 5
        assert kind.dim == found.features.shape[1]
        assert found.scores.tolist() == pytest.approx(scores[:5], rel=1e-4)
        torch.testing.assert_close(found.boxes, torch.tensor(boxes[:5]), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found.features, torch.stack(features[:5]), rtol=1e-3, atol=1e-4)
        assert (found.boxes >= 0).all()
        assert (found.boxes <= 1).all()


@torch.inference_mode()
def test_adaptive_regions_stop_at_the_score_but_not_below_the_least() -> None:
    image = pictures()[0]
    pixels = detector().preprocess(image)
    (all_of_them,) = detector(regions=20).extract([pixels])
    assert all_of_them.scores is not None
    scores = all_of_them.scores.tolist()
    threshold = (scores[6] + scores[7]) / 2
    for least, expected in ((2, 7), (7, 7), (9, 9)):
        (found,) = detector(regions=20, min_regions=least, min_score=threshold).extract([pixels])
        assert len(found.features) == expected
    (found,) = detector(regions=4, min_regions=2, min_score=threshold).extract([pixels])
    assert len(found.features) == 4


@torch.inference_mode()
def test_images_of_a_batch_do_not_see_each_other() -> None:
    kind, pixels = detector(), [detector().preprocess(image) for image in pictures()[2:] * 2]
    one, two = kind.extract(pixels)
    torch.testing.assert_close(one.features, two.features)


def test_other_detectors_are_refused() -> None:
    with pytest.raises(ValueError, match="needs a Faster R-CNN of torchvision"):
        Regions("retinanet_resnet50_fpn")
