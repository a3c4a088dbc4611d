"""The Faster R-CNN of bottom-up attention: ResNet-101, trained on objects and attributes of Visual
Genome."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, relu

from bifocal.backbones.state import load_into

STRIDE, POOLED = 16, 14
"""Pixels per cell of the map that regions are pooled from, and cells per side of a pooled
region."""
RATIOS, SCALES = (0.5, 1.0, 2.0), (4, 8, 16, 32)
MEAN_BGR = (102.9801, 115.9465, 122.7717)
MIN_SIDE, PROPOSALS_BEFORE, PROPOSALS, PROPOSAL_OVERLAP = 16, 6000, 300, 0.7
MAX_LOG_SCALE = 4.135166556742356
"""log(1000 / 16), the largest growth of an anchor."""
NAMES = {
    "backbone.": "",
    "proposal_generator.rpn_head.": "rpn.",
    "roi_heads.res5.": "res5.",
    "roi_heads.box_predictor.cls_score.": "cls_score.",
}
"""Prefixes of the checkpoint's names, and ours."""
UNUSED = (
    "roi_heads.box_predictor.bbox_pred.",
    "roi_heads.box_predictor.cls_embed.",
    "roi_heads.box_predictor.attr_",
    "proposal_generator.anchor_generator.",
    "pixel_",
)
"""Prefixes of tensors that the features do not need: refined boxes, attributes, constants."""


class BottomUpBackbone:
    """The frozen detector of Anderson et al., CVPR 2018, section 3.1, with random weights."""

    classifier_prefix = ""

    def __init__(self, model_arguments: dict[str, Any]) -> None:
        self.model_arguments = model_arguments
        self.network = BottomUpNetwork(**model_arguments).eval().requires_grad_(False)

    def describe(self) -> dict[str, Any]:
        return {"backbone": "bottom_up_resnet101", "model_arguments": self.model_arguments}

    def pretrained_state(self) -> dict[str, Tensor]:
        """Raise ``FileNotFoundError``: no library provides these weights."""
        raise FileNotFoundError("no library provides these weights")

    def download_url(self) -> str:
        """Return where the checkpoint is published, and how to convert it."""
        return (
            "bua-caffe-frcn-r101-k36.pth (R101-k36 of "
            "github.com/MILVLG/bottom-up-attention.pytorch), convert it with 'python -m "
            "pipelines convert bottom-up'"
        )


class ConvNorm(nn.Conv2d):
    """Convolution without bias, followed by a frozen batch normalization."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int = 1, dilation: int = 1
    ) -> None:
        from torchvision.ops import FrozenBatchNorm2d  # imported here: it takes seconds

        padding = dilation * (size // 2)
        super().__init__(inputs, outputs, size, stride, padding, dilation, bias=False)
        self.norm = FrozenBatchNorm2d(outputs)

    def forward(self, maps: Tensor) -> Tensor:
        return cast(Tensor, self.norm(super().forward(maps)))


class Bottleneck(nn.Module):
    """Residual block of three convolutions. The first 1 x 1 convolution has the stride, as in He et
    al., CVPR 2016."""

    def __init__(self, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = ConvNorm(inputs, width, 1, stride)
        self.conv2 = ConvNorm(width, width, 3, dilation=dilation)
        self.conv3 = ConvNorm(width, 4 * width, 1)
        self.shortcut = (
            None if inputs == 4 * width and stride == 1 else ConvNorm(inputs, 4 * width, 1, stride)
        )

    def forward(self, maps: Tensor) -> Tensor:
        residual = self.conv3(relu(self.conv2(relu(self.conv1(maps)))))
        return relu(residual + (maps if self.shortcut is None else self.shortcut(maps)))


class BottomUpNetwork(nn.Module):
    """Map, proposals and regions of the detector: BGR pixels (1, 3, H, W) less ``MEAN_BGR`` -> (1,
    16 width, h, w).

    ``blocks`` are the residual blocks of res2 to res5, ``width`` the channels of the stem; a region
    has 32 times as many features. The first of the ``classes`` is the background.
    """

    def __init__(
        self, blocks: Sequence[int] = (3, 4, 23, 3), width: int = 64, classes: int = 1601
    ) -> None:
        super().__init__()
        self.stem = nn.ModuleDict({"conv1": ConvNorm(3, width, 7, stride=2)})
        self.res2 = _stage(blocks[0], width, width, stride=1)
        self.res3 = _stage(blocks[1], 4 * width, 2 * width, stride=2)
        self.res4 = _stage(blocks[2], 8 * width, 4 * width, stride=2)
        self.res5 = _stage(blocks[3], 16 * width, 8 * width, stride=1, dilation=2)
        anchors, hidden = len(RATIOS) * len(SCALES), 8 * width
        self.rpn = nn.ModuleDict(
            {
                "conv": nn.Conv2d(16 * width, hidden, 3, padding=1),
                "objectness_logits": nn.Conv2d(hidden, 2 * anchors, 1),
                "anchor_deltas": nn.Conv2d(hidden, 4 * anchors, 1),
            }
        )
        self.cls_score = nn.Linear(32 * width, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        maps = max_pool2d(relu(self.stem["conv1"](pixels)), kernel_size=3, stride=2, ceil_mode=True)
        features: Tensor = self.res4(self.res3(self.res2(maps)))
        return features

    def proposals(self, maps: Tensor, height: int, width: int, scale: float) -> Tensor:
        """Return the boxes (P, 4) that probably hold an object, best first, in pixels of the
        resized image."""
        hidden = relu(self.rpn["conv"](maps))
        # The channels of the background come first, then the channels of the objects.
        logits = self.rpn["objectness_logits"](hidden).unflatten(1, (2, -1))
        scores = logits.softmax(dim=1)[0, 1].permute(1, 2, 0).flatten()
        deltas = self.rpn["anchor_deltas"](hidden)[0].permute(1, 2, 0).reshape(-1, 4)
        boxes = clip(decode(anchor_grid(*maps.shape[2:]).to(deltas), deltas), height, width)
        large = (boxes[:, 2:] - boxes[:, :2] + 1 >= MIN_SIDE * scale).all(dim=1)
        scores, order = scores[large].sort(descending=True, stable=True)
        boxes = boxes[large][order[:PROPOSALS_BEFORE]]
        return boxes[suppress(boxes, scores[:PROPOSALS_BEFORE], PROPOSAL_OVERLAP)[:PROPOSALS]]

    def regions(self, maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (P, 32 width), pool5, and the class probabilities (P, classes) of
        boxes."""
        from torchvision.ops import roi_pool

        pooled = roi_pool(maps, [boxes], POOLED, 1 / STRIDE)
        features = self.res5(pooled).mean(dim=(2, 3))
        return features, self.cls_score(features).softmax(dim=1)


def resize(pixels: Tensor, shorter: int, longer: int) -> tuple[Tensor, float]:
    """Return RGB pixels (3, h, w) from 0 to 255 as the network's input (1, 3, H, W), and the scale
    of the resizing.

    The shorter side becomes ``shorter`` pixels, the longer at most ``longer``; as OpenCV, without
    antialiasing.
    """
    height, width = pixels.shape[1:]
    scale = shorter / min(height, width)
    if round(scale * max(height, width)) > longer:
        scale = longer / max(height, width)
    centered = pixels.flip(0).float() - pixels.new_tensor(MEAN_BGR, dtype=torch.float32).view(
        3, 1, 1
    )
    size = (round(height * scale), round(width * scale))
    return interpolate(
        centered.unsqueeze(0), size=size, mode="bilinear", align_corners=False
    ), scale


def anchor_grid(height: int, width: int) -> Tensor:
    """Return the anchors (height * width * 12, 4) of a map, row by row: in a cell, all scales of a
    ratio, by ratio."""
    ratios, scales = torch.tensor(RATIOS), torch.tensor(SCALES)
    widths = (STRIDE**2 / ratios).sqrt().round()
    heights = (widths * ratios).round()
    sides = torch.stack([widths, heights], dim=1).unsqueeze(1) * scales.view(-1, 1)
    center = (STRIDE - 1) / 2
    offsets = (sides.reshape(-1, 2) - 1) / 2
    cell = torch.cat([center - offsets, center + offsets], dim=1)
    y, x = torch.meshgrid(
        torch.arange(height) * STRIDE, torch.arange(width) * STRIDE, indexing="ij"
    )
    shifts = torch.stack([x, y, x, y], dim=-1).reshape(-1, 1, 4)
    return (shifts + cell).reshape(-1, 4)


def decode(anchors: Tensor, deltas: Tensor) -> Tensor:
    """Return the boxes (n, 4) of anchors (n, 4) and their predicted shifts and log scales (n,
    4)."""
    sides = anchors[:, 2:] - anchors[:, :2] + 1
    centers = anchors[:, :2] + sides / 2 + deltas[:, :2] * sides
    half = deltas[:, 2:].clamp(max=MAX_LOG_SCALE).exp() * sides / 2
    return torch.cat([centers - half, centers + half], dim=1)


def clip(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return boxes (n, 4) inside an image: coordinates are pixels, from 0 to side - 1."""
    limit = boxes.new_tensor([width - 1, height - 1, width - 1, height - 1])
    return boxes.clamp(min=torch.zeros_like(limit), max=limit)


def suppress(boxes: Tensor, scores: Tensor, overlap: float) -> Tensor:
    """Return the rows that survive non-maximum suppression, best first; a box includes its last
    pixels."""
    from torchvision.ops import nms

    return cast(Tensor, nms(boxes + boxes.new_tensor([0, 0, 1, 1]), scores, overlap))


def _stage(blocks: int, inputs: int, width: int, stride: int, dilation: int = 1) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride, dilation)
    return nn.Sequential(
        first, *(Bottleneck(4 * width, width, 1, dilation) for _ in range(blocks - 1))
    )


def convert_bottom_up(
    checkpoint: Path, target: Path, network: BottomUpNetwork | None = None
) -> int:
    """Write the weights that ``BottomUp`` loads with ``FromFile`` to ``target``; return the number
    of tensors.

    The checkpoint is ``bua-caffe-frcn-r101-k36.pth`` or ``bua-caffe-frcn-r101-k10-100.pth`` of Yu
    et al. (github.com/MILVLG/bottom-up-attention.pytorch); no code in it runs.
    """
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several classes for files that are not checkpoints
        raise ValueError(
            f"{checkpoint} is refused: it is not a checkpoint with only tensors ({error})"
        ) from error
    state = content.get("model", content) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(
        isinstance(tensor, Tensor) for tensor in state.values()
    ):
        raise ValueError(f"{checkpoint} holds no named weights, expected the checkpoint R101-k36")
    tensors = {}
    for name, tensor in state.items():
        if name.startswith(UNUSED) or name.endswith("num_batches_tracked"):
            continue
        prefix = next((prefix for prefix in NAMES if name.startswith(prefix)), None)
        tensors[name if prefix is None else NAMES[prefix] + name.removeprefix(prefix)] = (
            tensor.float().contiguous()
        )
    load_into(BottomUpBackbone({}).network if network is None else network, tensors, checkpoint)
    target.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target)
    return len(tensors)
