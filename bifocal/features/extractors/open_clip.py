"""Features by a contrastive model's image tower: its projection, or its patch tokens."""

from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.open_clip import OpenClipBackbone, Output
from bifocal.features.boxes import CellExtractor, cell_boxes, cells_of
from bifocal.onnx.pixels import DECODED_SCALE


class OpenClip(CellExtractor):
    """Image tower of a model of open_clip, such as CLIP or SigLIP.

    Radford et al., "Learning transferable visual models from natural language supervision", ICML
    2021; Zhai et al., "Sigmoid loss for language image pre-training", ICCV 2023. With the
    vectorizer ``OpenClipText`` of the same weights, the cosine of the projections is the zero-shot
    score. Images are resized and cropped as the weights state.

    ``Pretrained`` downloads the weights of ``tag``; ``FromFile`` reads a safetensors file in
    open_clip's layout, such as ``open_clip_model.safetensors`` of its Hugging Face repository.
    Needs the extra ``clip``.

    Args:
        model: name of the model.
        tag: tag of its published weights; None for the preprocessing that the model itself states.
        output: "projection" for one vector per image in the joint space; "tokens" for the last
            normalized tokens of the patches, which are not in the joint space.
        model_arguments: further keyword arguments of ``open_clip.create_model``.

    Raises:
        ModuleNotFoundError: open_clip is not installed.
        ValueError: open_clip has no such model or tag.

    Example:
        >>> vision = {"image_size": 32, "patch_size": 8, "width": 16, "layers": 1, "head_width": 8}
        >>> text = {"context_length": 8, "width": 16, "heads": 2, "layers": 1}
        >>> small = {"embed_dim": 24, "vision_cfg": vision, "text_cfg": text}
        >>> extractor = OpenClip(tag=None, output="tokens", model_arguments=small)
        >>> (image,) = extractor.extract([torch.zeros(3, 32, 64, dtype=torch.uint8)])
        >>> image.features.shape, image.boxes[0].tolist()
        (torch.Size([16, 16]), [0.25, 0.0, 0.375, 0.25])
    """

    keeps_weights = True

    def __init__(
        self,
        model: str = "ViT-B-32",
        tag: str | None = "laion2b_s34b_b79k",
        output: Output = "projection",
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone: OpenClipBackbone = OpenClipBackbone(model, tag, model_arguments)
        self.output = output

    @property
    def decoded_side(self) -> int:
        return DECODED_SCALE * self.backbone.size

    @property
    def regions(self) -> int:
        """R: number of patches, or 1."""
        return self._shape[0]

    @property
    def dim(self) -> int:
        """D: dimension of the joint space, or of a token."""
        return self._shape[1]

    def describe(self) -> dict[str, Any]:
        return self.backbone.describe() | {"layer": self.output}

    def preprocess(self, image: Image.Image) -> Tensor:
        """Return the pixels (3, H, W) uint8 of the resized image, which ``extract`` crops if
        necessary."""
        return self.backbone.preprocess(image)

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, size, size) uint8 to features (B, R, D) and boxes (R, 4) of their
        cells, row by row."""
        if self.output == "projection":
            features = self.backbone.project(pixels).unsqueeze(1)
            return features, cell_boxes(1, 1).to(features.device)
        return cells_of(self.backbone.token_map(pixels))

    @cached_property
    def _shape(self) -> tuple[int, int]:
        size = self.backbone.size
        with torch.inference_mode():
            features, _ = self.cells(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        return features.shape[1], features.shape[2]
