"""Pooled features: one vector per image, the input of the network's classifier."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bifocal.backbones.timm.backbone import Pooling
from bifocal.features.boxes import CellExtractor, cell_boxes
from bifocal.features.extractors.base import TimmExtractor
from bifocal.onnx.pixels import ResizeOrCrop


class Pooled(TimmExtractor, CellExtractor):
    """Pooled features of a timm network; the only region is the image, or its central square with
    the resize "crop".

    timm pools as the network was trained: the mean of a feature map, the class token of a vision
    transformer, or its attention pooling. Images are resized and cropped as timm states for the
    weights, unless ``size`` or ``resize`` say otherwise. "class_and_mean": Jose et al., "DINOv2
    meets text", CVPR 2025, section 3, with a frozen DINOv2.

    Further arguments: see ``TimmExtractor``.

    Args:
        pooling: "network" for the input of timm's classifier; "class_and_mean" for the class token
            of a transformer and the mean of its patches' tokens, concatenated.

    Raises:
        ValueError: timm has no such model, or the model has no class token or takes images of
            another size.

    Example:
        >>> extractor = Pooled("test_vit", pooling="class_and_mean")
        >>> extractor.describe()["preprocessing"]["resize"]
        'crop'
        >>> (image,) = extractor.extract([torch.zeros(3, 168, 224, dtype=torch.uint8)])
        >>> image.features.shape  # 64 of the class token, 64 of the mean
        torch.Size([1, 128])
    """

    keeps_weights = True
    regions = 1

    def __init__(
        self,
        backbone: str = "vit_small_patch14_reg4_dinov2.lvd142m",
        pooling: Pooling = "network",
        size: int | None = None,
        resize: ResizeOrCrop | None = None,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, size, resize, mean, std, model_arguments)
        self.backbone.check_size()
        self.pooling = pooling

    @cached_property
    def dim(self) -> int:
        with torch.inference_mode():
            return self.backbone.pooled(self.backbone.blank_image(), self.pooling).shape[1]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"layer": f"pooled by {self.pooling}"}

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, 1, D) and the box (1, 4) of the image."""
        features = self.backbone.pooled(pixels, self.pooling).unsqueeze(1)
        return features, cell_boxes(1, 1).to(features.device)
