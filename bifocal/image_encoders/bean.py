"""BEAN: selective spatial pooling over the maps of a fully convolutional network."""

from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.backbones.state import CARRIED, fit_weights
from bifocal.backbones.trainable import PixelBackbone, Protocol, by_size, random_crops, scaled, seen, whole_images

Pooling = Literal["max_min", "average"]


class BEANEncoder(nn.Module):
    """A fully convolutional backbone, a 1 x 1 adaptation, max + min pooling, and a normalised affine projection.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (1)-(3): G = g(F), h[k] = max G[:, :, k] +
    min G[:, :, k], x = (A h + b) / |A h + b|. Dropout stands before the projection (section 4.1).

    With a backbone it reads pixels (features of the kind Pixels) and trains end to end: random rectangles of the
    image, resized to ``crop``, in training; as ``protocol`` says in evaluation. Without one it reads the cells of
    stored features, whose backbone is frozen.

    Args:
        input_dim: 3, of pixels; or D, channels of a cell.
        dim: d, of the embedding.
        maps: D', of the adaptation.
        pooling: "max_min" of eq. (2), or "average" (GAP), the ablation of section 4.3.
        dropout: probability.
        backbone: name of a timm model; None to read stored features.
        crop: pixels, of the side of a random crop in training; None to train as in evaluation.
        protocol: how an image is seen in evaluation, see ``bifocal.backbones.trainable.Protocol``.
        side: pixels, that "stretch" resizes to.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Shape:
        pixels (B, 3, H, W) 0 to 255 and mask (B, H, W) bool, or features (B, R, D) and mask (B, R) bool, true where
        there is an image or a region -> (B, d), of unit norm.

    Raises:
        ValueError: an argument is unknown, or the features are not what the backbone reads.
    """

    def __init__(
        self,
        input_dim: int = 3,
        dim: int = 2400,
        maps: int = 2400,
        pooling: Pooling = "max_min",
        dropout: float = 0.5,
        backbone: str | None = "resnet152",
        crop: int | None = 256,
        protocol: Protocol = "stretch",
        side: int = 400,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if pooling not in ("max_min", "average"):
            raise ValueError(f"no pooling {pooling!r}; BEANEncoder has max_min and average")
        if protocol not in ("stretch", "scale_and_crop", "as_is"):
            raise ValueError(f"no protocol {protocol!r}; BEANEncoder has stretch, scale_and_crop and as_is")
        if backbone is not None and input_dim != 3:
            raise ValueError(
                f"BEANEncoder: the backbone {backbone} reads pixels, of 3 channels, and the features have {input_dim}; "
                "extract features of the kind Pixels, or set backbone: null to stand on stored ones"
            )
        self.backbone = None if backbone is None else PixelBackbone(backbone, model_arguments)
        channels = input_dim if self.backbone is None else self.backbone.channels
        self.adaptation = nn.Linear(channels, maps, bias=False)  # a 1 x 1 convolution, cell by cell
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(maps, dim)
        self.pooling, self.crop, self.protocol, self.side = pooling, crop, protocol, side

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        if self.backbone is None:
            return self.project(self.pool(self.adaptation(features), mask))
        if self.training and self.crop is not None:
            return self.embed_pixels(random_crops(features, mask, self.crop))
        return by_size(seen(features, mask, self.protocol, self.side), self.embed_pixels)

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Images of one size (B, 3, H, W), every pixel of which counts, to (B, d)."""
        assert self.backbone is not None
        return self.aggregate(self.backbone(pixels))

    def aggregate(self, maps: Tensor) -> Tensor:
        """The backbone's maps F (B, C, h, w) to (B, d)."""
        cells = self.adapted(maps)
        return self.project(self.pool(cells, cells.new_ones(cells.shape[:2], dtype=torch.bool)))

    def activations(self, pixels: Tensor) -> Tensor:
        """G of eq. (1) of images of one size (B, 3, H, W): (B, h w, D'), row by row."""
        assert self.backbone is not None
        return self.adapted(self.backbone(pixels))

    def adapted(self, maps: Tensor) -> Tensor:
        """G, as above, of the backbone's maps F."""
        cells: Tensor = self.adaptation(maps.flatten(2).transpose(1, 2))
        return cells

    def whole_views(self, pixels: Tensor, mask: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W), each cut to its ``mask`` (B, H, W), in the protocol's scale and with no part cut off."""
        if self.protocol == "scale_and_crop":
            return [scaled(image) for image in whole_images(pixels, mask)]
        return seen(pixels, mask, self.protocol, self.side)

    def pool(self, maps: Tensor, mask: Tensor) -> Tensor:
        """h of eq. (2), (B, D'), of G (B, R, D') where ``mask`` (B, R) is true."""
        present = mask.unsqueeze(2)
        if self.pooling == "average":
            return (maps * present).sum(dim=1) / present.sum(dim=1)
        highest = maps.masked_fill(~present, -torch.inf).amax(dim=1)
        return highest + maps.masked_fill(~present, torch.inf).amin(dim=1)

    def project(self, pooled: Tensor) -> Tensor:
        """x of eq. (3), (B, d), of h (B, D')."""
        return normalize(self.projection(self.dropout(pooled)), dim=1)

    def initialise(self, directory: Path) -> None:
        """Start from the backbone, and the adaptation if it was pretrained, of a ``features`` artifact.

        Raises:
            FileNotFoundError: there are pixels to read and no weights in the artifact.
            ValueError: they are of another network.
        """
        path = directory / CARRIED
        if self.backbone is not None:
            beside = self.backbone.initialise(directory)
        else:
            beside = load_file(path) if path.is_file() else {}
        prefix = "adaptation."
        found = {name.removeprefix(prefix): value for name, value in beside.items() if name.startswith(prefix)}
        if found:
            fit_weights(self.adaptation, found, path, head="")
