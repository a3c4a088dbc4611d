"""The base class of image encoders, and the pooling of regions."""

from pathlib import Path

import torch
from torch import Tensor

from bifocal.features import RegionBatch
from bifocal.layers import Encoder
from bifocal.localization.base import Localizer
from bifocal.localization.grad_cam import Activations


def mean_region(features: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (B, D) of the regions (B, R, D) that the mask (B, R) marks; 0 without a
    region."""
    present = mask.unsqueeze(2)
    return (features * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)


def max_plus_min(features: Tensor, mask: Tensor, k: int = 1) -> Tensor:
    """Return the mean of the k highest plus the mean of the k lowest values of each channel (B, D).

    "Finding beans in burgers", eq. (2), with k = 1. An image of fewer regions has the mean of all
    of them, twice; one without a region has 0.
    """
    absent, largest = ~mask.unsqueeze(2), torch.finfo(features.dtype).max
    high, low = features.masked_fill(absent, -largest), features.masked_fill(absent, largest)
    if k == 1:
        return high.amax(dim=1) + low.amin(dim=1)
    extremes = high.sort(dim=1, descending=True).values[:, :k] + low.sort(dim=1).values[:, :k]
    counts = mask.sum(dim=1, keepdim=True).clamp(1, k)
    counted = torch.arange(extremes.shape[1], device=mask.device) < counts
    return torch.where(counted.unsqueeze(2), extremes, 0.0).sum(dim=1) / counts


class ImageEncoder(Encoder):
    """Encoder of images: ``forward(features, mask) -> (B, d)``, of unit norm."""

    reads_pixels: bool = False
    """Whether the input is pixels (B, 3, H, W) in [0, 255], and not stored features (B, R, D)."""
    single_vector: bool = (
        True  # whether an image has one vector (B, d), and not one per cell and level (B, L, N, d)
    )
    levels_per_image: int = 1
    """L of an encoder with several vectors; stored features hold the cells of one level after the
    other."""
    keeps_any_size: bool = (
        False  # whether evaluation feeds an image of any size unchanged to the network
    )
    onnx_image_size: int | None = (
        None  # side of the only square that an exported graph takes, pixels
    )

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        """Shape of the input; a name stands for a dimension of any size."""
        if self.reads_pixels:
            return ("batch", 3, self.onnx_image_size or "height", self.onnx_image_size or "width")
        return ("batch", "regions", self.input_dim)

    def localizer(self) -> Localizer | None:
        """Return the localizer of this encoder's paper; None if the paper has none."""
        return None

    def last_activations(self, regions: RegionBatch) -> Activations:
        """Return the last activations of one image that have a position: here, the stored
        regions."""
        if not self.single_vector:
            raise ValueError(
                f"Grad-CAM needs one vector per image, a {type(self).__name__} gives several"
            )
        present = regions.mask[0]

        def embed(cells: Tensor) -> Tensor:
            vectors: Tensor = self(cells.unsqueeze(0), present[present].unsqueeze(0))
            return vectors[0]

        return Activations(
            self.to_dtype(regions.features)[0, present], regions.boxes[0, present], embed
        )

    def keeps_square(self, size: int) -> bool:
        """Return whether evaluation feeds the pixels of a square image of ``size`` pixels unchanged
        to the network."""
        return self.keeps_any_size

    @property
    def stretched_side(self) -> int | None:
        """Side in pixels of the square that evaluation stretches any image to; None if it does
        not."""
        return None

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Return the embeddings (B, d) of images of one size (B, 3, H, W)."""
        raise TypeError(f"a {type(self).__name__} reads stored features, not pixels")

    def pixel_regions(self, pixels: Tensor) -> Tensor:
        """Return the vectors (B, R, d) of images (B, 3, H, W) that the localizer compares with a
        phrase."""
        raise TypeError(f"a {type(self).__name__} has no regions of pixels")

    def load_pretrained(self, directory: Path) -> None:
        """Load the weights that a feature directory keeps; without a backbone, do nothing."""

    def to_dtype(self, features: Tensor) -> Tensor:
        """Return stored features in the data type of the weights."""
        return features.to(next(self.parameters()).dtype)
