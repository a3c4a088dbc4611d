"""R-MAC, trained end to end: the encoder, and its grid of squares over a feature map."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.backbones.base import map_by_shape
from bifocal.backbones.state import load_into
from bifocal.backbones.timm.trainable import EVAL_BATCH_SIZE, PixelBackbone, whole_images
from bifocal.backbones.whitening import Whitening
from bifocal.features import RegionBatch
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization.grad_cam import Activations


class RMACEncoder(ImageEncoder):
    """Regional maximum activations with the whitening as a layer, over pixels.

    Gordo, Larlus, "Beyond instance-level image retrieval", CVPR 2017, sections 3 and 5 (after
    Tolias et al., ICLR 2016): the map is max-pooled over a grid of squares at two scales; each
    region is L2-normalized, whitened and L2-normalized again; the sum is L2-normalized. All weights
    train. The initialization ``PCAWhitening`` lets the last layer start from PCA whitening. The
    batch normalizations of the network keep their statistics, because images of different shapes
    pass in batches of one shape.

    Args:
        input_dim: 3, for pixels.
        dim: d, dimension of the embedding; at most the channels of the backbone if it starts from a
            whitening.
        backbone: name of a timm model.
        scales: scales of the grid of regions.
        model_arguments: further keyword arguments of ``timm.create_model``.

    Shape:
        pixels (B, 3, H, W) 0 to 255, mask (B, H, W) bool, true where there is an image -> (B, d),
        of unit norm.

    Example:
        >>> import torch
        >>> small = {"channels": [4, 4, 4, 8], "stem_width": 4}
        >>> encoder = RMACEncoder(dim=4, backbone="resnet10t", model_arguments=small)
        >>> encoder(torch.rand(2, 3, 64, 96), torch.ones(2, 64, 96, dtype=torch.bool)).shape
        torch.Size([2, 4])
    """

    reads_pixels, keeps_any_size = True, True

    def __init__(
        self,
        input_dim: int = 3,
        dim: int = 2048,
        backbone: str = "resnet101.tv_in1k",
        scales: int = 2,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(input_dim, dim)
        if input_dim != 3:
            raise ValueError(
                f"RMACEncoder reads pixels, of 3 channels, and the features have {input_dim}: "
                "extract with Pixels"
            )
        self.backbone = PixelBackbone(backbone, model_arguments)
        self.whitening = nn.Linear(self.backbone.channels, dim)
        self.scales = scales

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        self._keep_statistics()
        images = whole_images(features, mask)
        return torch.stack(
            map_by_shape(images, lambda some: self.embed_maps(self.backbone(some)), EVAL_BATCH_SIZE)
        )

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Return the embeddings (B, d) of images of one size (B, 3, H, W), by operations that no
        size changes.

        An image that is too thin for a scale has only the regions of other scales; ``forward``
        rejects it.
        """
        maxima, present = region_maxima_of_any_size(self.backbone(pixels), self.scales)
        regions = normalize(maxima.masked_fill(~present[:, None], 0.0), dim=2)
        return self._sum(self._whiten(regions).masked_fill(~present[:, None], 0.0))

    def embed_maps(self, maps: Tensor) -> Tensor:
        """Return the embeddings (B, d) of the backbone's maps (B, C, h, w)."""
        return self._sum(self._whiten(self._regions(maps)))

    def region_vectors(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the l2-normalized maxima (n, C) of all regions of images (B, 3, H, W), before the
        whitening."""
        self._keep_statistics()
        images = whole_images(features, mask)
        regions = map_by_shape(
            images, lambda pixels: self._regions(self.backbone(pixels)), EVAL_BATCH_SIZE
        )
        return torch.cat(regions)

    def set_whitening(self, whitening: Whitening) -> None:
        """Set the last layer to a whitening to d dimensions, or to the first d of more."""
        projection = whitening.projection[: self.whitening.out_features]
        weights = {"weight": projection, "bias": -projection @ whitening.mean}
        load_into(self.whitening, weights, Path("the whitening"))

    def last_activations(self, regions: RegionBatch) -> Activations:
        """Return the backbone's maps of one image."""
        (image,) = whole_images(self.to_dtype(regions.features), regions.mask)
        return Activations.from_maps(self.backbone(image.unsqueeze(0)), self.embed_maps)

    def load_pretrained(self, directory: Path) -> None:
        """Load the backbone from a directory of extracted features."""
        self.backbone.load_pretrained(directory)

    def _regions(self, maps: Tensor) -> Tensor:
        """Return the l2-normalized maxima (B, n, C) of the regions of maps (B, C, h, w)."""
        return normalize(region_maxima(maps, self.scales), dim=2)

    def _whiten(self, regions: Tensor) -> Tensor:
        return normalize(self.whitening(regions), dim=2)

    def _sum(self, regions: Tensor) -> Tensor:
        return normalize(regions.sum(dim=1), dim=1)

    def _keep_statistics(self) -> None:
        # Not in train(): the freezing code may call backbone.train() directly.
        for module in self.backbone.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()


OVERLAP = 0.4
EXTRA_REGIONS = range(1, 7)


def grid_regions(height: int, width: int, scales: int) -> list[tuple[int, int, int]]:
    """Return the squares (top, left, side) of R-MAC over a map, in cells.

    Tolias, Sicre, Jegou, ICLR 2016, section 3.2: at scale l, l regions of side 2 min(h, w) / (l +
    1) lie along the shorter side and l + m along the longer; m sets the overlap at l = 1 to 40 %.
    It rounds as their code does, also where two values of m fit equally, as for 9 x 33.
    """
    short, extra = min(height, width), 0
    if height != width:
        strides = [(max(height, width) - short) / count for count in EXTRA_REGIONS]
        misfits = [abs((short**2 - short * stride) / short**2 - OVERLAP) for stride in strides]
        extra = 1 + misfits.index(min(misfits))
    regions = []
    for scale in range(1, scales + 1):
        side = 2 * short // (scale + 1)
        if side < 1:
            raise ValueError(
                f"a map of {height} x {width} cells has no regions at scale {scale}: enlarge "
                "the image"
            )
        tops = _offsets(height, side, scale + (extra if height > width else 0))
        lefts = _offsets(width, side, scale + (extra if width > height else 0))
        regions += [(top, left, side) for top in tops for left in lefts]
    return regions


def region_maxima(maps: Tensor, scales: int) -> Tensor:
    """Return the maximum of each channel in each of the n regions: maps (B, C, h, w) -> (B, n,
    C)."""
    maxima = [
        maps[:, :, top : top + side, left : left + side].amax(dim=(2, 3))
        for top, left, side in grid_regions(int(maps.shape[2]), int(maps.shape[3]), scales)
    ]
    return torch.stack(maxima, dim=1)


def region_maxima_of_any_size(maps: Tensor, scales: int) -> tuple[Tensor, Tensor]:
    """Return ``region_maxima`` in a graph of any image size: maps (B, C, h, w) -> maxima (B, n, C),
    present (n,).

    The output has room for the regions of every map size; absent regions are minus infinity.
    """
    rows, columns = (
        torch.arange(maps.shape[2], device=maps.device),
        torch.arange(maps.shape[3], device=maps.device),
    )
    height, width = rows.max() + 1, columns.max() + 1
    short, longer = torch.minimum(height, width).double(), torch.maximum(height, width).double()
    strides = (longer - short) / torch.tensor(
        EXTRA_REGIONS, dtype=torch.float64, device=maps.device
    )
    extra = 1 + ((short**2 - short * strides) / short**2 - OVERLAP).abs().argmin()
    maxima, present = [], []
    for scale in range(1, scales + 1):
        side = torch.div(2 * torch.minimum(height, width), scale + 1, rounding_mode="floor")
        most = scale + max(EXTRA_REGIONS)
        tops = _windows(rows, side, scale + extra * (height > width), most)
        lefts = _windows(columns, side, scale + extra * (width > height), most)
        bands = torch.stack(
            [maps.masked_fill(~top[:, None], -torch.inf).amax(dim=2) for top in tops.unbind()],
            dim=1,
        )
        maxima += [bands.masked_fill(~left, -torch.inf).amax(dim=3) for left in lefts.unbind()]
        present.append((lefts.any(dim=1)[:, None] & tops.any(dim=1)).flatten())
    return torch.cat(maxima, dim=1), torch.cat(present)


def _windows(cells: Tensor, side: Tensor, count: Tensor, most: int) -> Tensor:
    """Return whether a cell (n,) of a row is in a window: (most, n), where the first ``count``
    windows exist."""
    number = torch.arange(most, device=cells.device)
    first = torch.div(
        (cells.max() + 1 - side) * number, (count - 1).clamp(min=1), rounding_mode="floor"
    )[:, None]
    return (cells >= first) & (cells < first + side) & (number < count)[:, None]


def _offsets(length: int, side: int, count: int) -> list[int]:
    return (
        [0] if count == 1 else [(length - side) * number // (count - 1) for number in range(count)]
    )
