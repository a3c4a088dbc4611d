"""Protocols of feature extractors and readers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from PIL import Image
from torch import Tensor

from bifocal.backbones.base import Backbone
from bifocal.datasets import Dataset


class ImageRegions(NamedTuple):
    """The r regions of one image."""

    features: Tensor  # (r, D) float
    boxes: Tensor | None = None  # (r, 4), x0 y0 x1 y1 relative to the image's width and height
    scores: Tensor | None = None  # (r,); None if all regions have equal weight
    truth: int = 0  # number of ground-truth boxes, which come last: only training sees them


@runtime_checkable
class FeatureExtractor(Protocol):
    """Extractor of an image's features with the network ``backbone``.

    If ``keeps_weights``, the feature directory keeps the weights for trained encoders and exported
    graphs.
    """

    keeps_weights: bool

    @property
    def decoded_side(self) -> int | None:
        """Pixels that each side of a decoded JPEG needs; None for its full resolution."""

    @property
    def backbone(self) -> Backbone:
        """The network."""

    @property
    def regions(self) -> int:
        """R, the maximum number of regions per image, ground-truth boxes included."""

    @property
    def dim(self) -> int:
        """D, the dimension of a region's features."""

    def describe(self) -> dict[str, Any]:
        """Return backbone, layer and preprocessing, for the metadata of the feature store."""

    def preprocess(self, image: Image.Image) -> Any:
        """Return the input of ``extract`` for an RGB image, such as its pixels (3, H, W) uint8.
        Thread-safe."""

    def extract(self, images: Sequence[Any]) -> list[ImageRegions]:
        """Return the regions of each preprocessed image, computed on the network's device."""


@runtime_checkable
class GridExtractor(FeatureExtractor, Protocol):
    """Extractor whose regions are the cells of a map: an ONNX graph can compute them."""

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, R, D) and boxes (R, 4) of their cells."""


@runtime_checkable
class BoxExtractor(FeatureExtractor, Protocol):
    """Extractor that also computes the features of given boxes, such as the ground-truth boxes of
    phrases."""

    truth_regions: (
        int  # maximum number of ground-truth boxes per image; they are part of ``regions``
    )

    def preprocess(self, image: Image.Image, truth: Tensor | None = None) -> Any:
        """Return the input of ``extract`` for an image and its ground-truth boxes (t, 4), relative
        to its sides."""


class FeatureSource(Protocol):
    """The regions of a dataset's images."""

    regions: int  # R, the maximum number of regions per image, ground-truth boxes included
    dim: int  # D, the dimension of a region's features

    def describe(self) -> dict[str, Any]:
        """Return how the features were computed, for the metadata of the feature store."""

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """Yield each of these images once, in an order that depends on the source only."""


@runtime_checkable
class FeatureReader(Protocol):
    """Reader of published features from files; the images are not needed."""

    def open(self, dataset: Dataset) -> FeatureSource:
        """Open the files with the features of the dataset's images."""
