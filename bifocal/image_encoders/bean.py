"""BEAN: selective spatial pooling over the maps of a fully convolutional network."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from bifocal.backbones.base import map_by_shape
from bifocal.backbones.state import WEIGHTS_FILE, load_into
from bifocal.backbones.timm.trainable import (
    EVAL_BATCH_SIZE,
    EvalResize,
    PixelBackbone,
    random_crops,
    resize_for_eval,
    scale_shorter_side,
    whole_images,
)
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders.base import ImageEncoder, max_plus_min, mean_region
from bifocal.localization.base import RegionVectors
from bifocal.localization.bean import BEANHeatmap, class_activation_maps
from bifocal.localization.grad_cam import Activations

Pooling = Literal["max_min", "average"]


class BEANEncoder(ImageEncoder):
    """A fully convolutional backbone, a 1 x 1 adaptation, max + min pooling, and a normalized
    affine projection.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (1)-(3): G = g(F), h[k] = max G[:,
    :, k] + min G[:, :, k], x = (A h + b) / |A h + b|. Dropout precedes the projection (section
    4.1). The authors' code has ``extremes`` 15 and ``mirror`` true, which the paper does not say.

    With a backbone the encoder reads pixels (extractor ImageFiles or Pixels) and trains end to end:
    on random crops resized to ``crop`` in training, on images resized by ``eval_resize`` in
    evaluation. Without a backbone it reads the cells of stored features, whose backbone is frozen.

    Args:
        input_dim: 3 for pixels; D, channels of a cell, for stored features.
        dim: d, dimension of the embedding.
        maps: D', output channels of the adaptation.
        pooling: "max_min" of eq. (2), or "average" (GAP), the ablation of section 4.3.
        extremes: number of highest and of lowest cells of a map whose means "max_min" adds; 1 in
            eq. (2).
        dropout: probability.
        backbone: name of a timm model; None to read stored features.
        crop: pixels, side of a random crop in training; None to train on the images of evaluation.
        mirror: whether half of the random crops are mirrored.
        eval_resize: resizing in evaluation, see ``bifocal.backbones.timm.trainable.EvalResize``.
        image_size: pixels, side of the square of ``eval_resize`` "stretch".
        model_arguments: further keyword arguments of ``timm.create_model``.

    Shape:
        pixels (B, 3, H, W) 0 to 255 and mask (B, H, W) bool, or features (B, R, D) and mask (B, R)
        bool, true where there is an image or a region -> (B, d), of unit norm.

    Raises:
        ValueError: an argument is unknown, or ``input_dim`` does not fit the backbone.

    Example:
        >>> encoder = BEANEncoder(input_dim=3, dim=4, maps=6, backbone=None)
        >>> encoder(torch.rand(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_dim: int = 3,
        dim: int = 2400,
        maps: int = 2400,
        pooling: Pooling = "max_min",
        extremes: int = 1,
        dropout: float = 0.5,
        backbone: str | None = "resnet152.tv_in1k",
        crop: int | None = 256,
        mirror: bool = False,
        eval_resize: EvalResize = "stretch",
        image_size: int = 400,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(input_dim, dim)
        if pooling not in get_args(Pooling):
            raise ValueError(
                f"no pooling {pooling!r}; BEANEncoder has {' and '.join(get_args(Pooling))}"
            )
        if eval_resize not in get_args(EvalResize):
            raise ValueError(
                f"no eval_resize {eval_resize!r}; BEANEncoder has {', '.join(get_args(EvalResize))}"
            )
        if backbone is not None and input_dim != 3:
            raise ValueError(
                f"BEANEncoder: the backbone {backbone} reads pixels, of 3 channels, and the "
                f"features have {input_dim}; extract features with ImageFiles, or set backbone "
                "to None (null) to read stored features"
            )
        self.backbone = None if backbone is None else PixelBackbone(backbone, model_arguments)
        self.reads_pixels = self.backbone is not None
        channels = input_dim if self.backbone is None else self.backbone.channels
        self.adaptation = nn.Linear(channels, maps, bias=False)  # a 1 x 1 convolution, cell by cell
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(maps, dim)
        self.pooling, self.extremes, self.crop, self.mirror = pooling, extremes, crop, mirror
        self.eval_resize, self.image_size = eval_resize, image_size

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Yield what two arguments contradict."""
        if "extremes" in arguments and arguments.get("pooling", "max_min") != "max_min":
            yield "extremes is for pooling 'max_min': leave extremes out"
        if arguments.get("mirror") and (
            arguments.get("crop", 256) is None or arguments.get("backbone", "") is None
        ):
            yield "mirror is for random crops of pixels: set backbone and crop, or leave mirror out"

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        if not self.reads_pixels:
            return self.project(self.pool(self.adaptation(features), mask))
        if self.training and self.crop is not None:
            return self.embed_pixels(
                random_crops(whole_images(features, mask), self.crop, mirror=self.mirror)
            )
        images = resize_for_eval(features, mask, self.eval_resize, self.image_size)
        return torch.stack(map_by_shape(images, self.embed_pixels, EVAL_BATCH_SIZE))

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Return the embeddings (B, d) of images of one size (B, 3, H, W)."""
        return self.embed_maps(self.backbone_maps(pixels))

    def embed_maps(self, maps: Tensor) -> Tensor:
        """Return the embeddings (B, d) of the backbone's maps F (B, C, h, w)."""
        cells = self.adapt(maps)
        return self.project(self.pool(cells, cells.new_ones(cells.shape[:2], dtype=torch.bool)))

    def adapt(self, maps: Tensor) -> Tensor:
        """Return G of eq. (1), (B, h w, D') row by row, of the backbone's maps F (B, C, h, w)."""
        cells: Tensor = self.adaptation(maps.flatten(2).transpose(1, 2))
        return cells

    def backbone_maps(self, pixels: Tensor) -> Tensor:
        """Return F (B, C, h, w), eq. (1), for images of one size (B, 3, H, W)."""
        if self.backbone is None:
            raise TypeError(
                "this BEANEncoder has no backbone: it reads stored features, not pixels"
            )
        maps: Tensor = self.backbone(pixels)
        return maps

    def pool(self, cells: Tensor, mask: Tensor) -> Tensor:
        """Return h of eq. (2), (B, D'), of G (B, R, D') where ``mask`` (B, R) is true."""
        return (
            mean_region(cells, mask)
            if self.pooling == "average"
            else max_plus_min(cells, mask, self.extremes)
        )

    def project(self, pooled: Tensor) -> Tensor:
        """Return x of eq. (3), (B, d), of h (B, D')."""
        return normalize(self.projection(self.dropout(pooled)), dim=1)

    def uncropped_views(self, pixels: Tensor, mask: Tensor) -> list[Tensor]:
        """Return images (B, 3, H, W) without padding, at the scale of evaluation, but never
        cropped."""
        if self.eval_resize == "scale_and_crop":
            return [scale_shorter_side(image) for image in whole_images(pixels, mask)]
        return resize_for_eval(pixels, mask, self.eval_resize, self.image_size)

    def keeps_square(self, size: int) -> bool:
        unchanged = self.eval_resize == "as_is" or (
            self.eval_resize == "stretch" and self.image_size == size
        )
        return self.reads_pixels and unchanged

    @property
    def stretched_side(self) -> int | None:
        return self.image_size if self.reads_pixels and self.eval_resize == "stretch" else None

    def localizer(self) -> BEANHeatmap:
        """Return the localizer of section 3.3."""
        return BEANHeatmap()

    def activation_maps(self, regions: RegionBatch) -> RegionVectors:
        """Return G', eq. (8). Images of different sizes have different numbers of cells."""
        features, projection = self.to_dtype(regions.features), self.projection.weight
        if not self.reads_pixels:
            maps = class_activation_maps(self.adaptation(features), projection)
            return RegionVectors(maps, regions.mask, regions.boxes)
        vectors, boxes = [], []
        for image in self.uncropped_views(features, regions.mask):
            maps = self.backbone_maps(image.unsqueeze(0))
            vectors.append(class_activation_maps(self.adapt(maps)[0], projection))
            boxes.append(cell_boxes(*maps.shape[2:]).to(maps))
        masks = [cells.new_ones(len(cells), dtype=torch.bool) for cells in vectors]
        return RegionVectors(
            *(pad_sequence(parts, batch_first=True) for parts in (vectors, masks, boxes))
        )

    def pixel_regions(self, pixels: Tensor) -> Tensor:
        """Return G' (B, h w, d), eq. (8), row by row, for images of one size (B, 3, H, W)."""
        return class_activation_maps(self.adapt(self.backbone_maps(pixels)), self.projection.weight)

    def last_activations(self, regions: RegionBatch) -> Activations:
        """Return the backbone's maps of one image, or its stored regions."""
        if not self.reads_pixels:
            return super().last_activations(regions)
        (image,) = self.uncropped_views(self.to_dtype(regions.features), regions.mask)
        return Activations.from_maps(self.backbone_maps(image.unsqueeze(0)), self.embed_maps)

    def load_pretrained(self, directory: Path) -> None:
        """Load the backbone, and the adaptation if it was pretrained, from a directory of extracted
        features."""
        path = directory / WEIGHTS_FILE
        if self.backbone is not None:
            extra = self.backbone.load_pretrained(directory)
        else:
            extra = load_file(path) if path.is_file() else {}
        prefix = "adaptation."
        weights = {
            name.removeprefix(prefix): value
            for name, value in extra.items()
            if name.startswith(prefix)
        }
        if weights:
            load_into(self.adaptation, weights, path)
