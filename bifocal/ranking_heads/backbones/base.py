"""Base class of the backbones of ranking heads."""

from abc import ABC, abstractmethod
from pathlib import Path

from torch import Tensor, nn


class RankingBackbone(nn.Module, ABC):
    """A network below a ranking head: ``forward(inputs, mask) -> (features (B, R, D), mask (B,
    R))``, D = ``dim``."""

    reads_pixels: bool = True
    """Whether the inputs are pixels (B, 3, H, W) in [0, 255], and not stored features."""
    keeps_any_size: bool = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    @property
    @abstractmethod
    def input_shape(self) -> tuple[str | int, ...]:
        """Shape of the input; a name stands for a dimension of any size."""

    @abstractmethod
    def keeps_square(self, size: int) -> bool:
        """Return whether evaluation feeds the pixels of a square image of ``size`` pixels unchanged
        to the network."""

    @property
    def stretched_side(self) -> int | None:
        """Side of the square, pixels, that evaluation stretches original images to; None if it
        keeps their shape."""
        return None

    @abstractmethod
    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Return the features (B, R, D) of images of one size (B, 3, H, W), resized as in
        evaluation."""

    @abstractmethod
    def load_pretrained(self, directory: Path) -> None:
        """Load the weights that were stored with the features in ``directory``."""
