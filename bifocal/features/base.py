"""What a kind of features provides."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from PIL import Image
from torch import Tensor, nn

from bifocal.datasets import Dataset

T = TypeVar("T")


class ImageRegions(NamedTuple):
    """The r regions of one image.

    Attributes:
        features: (r, D) float.
        boxes: (r, 4), x0 y0 x1 y1 relative to the image's width and height; None where the source has none.
        scores: (r,); None where every region counts alike.
    """

    features: Tensor
    boxes: Tensor | None = None
    scores: Tensor | None = None


class Backbone(Protocol):
    """A network with weights.

    Attributes:
        network: holds the weights, under the names of the library that it comes from.
        head: first word of the names of those weights that a file may have and the network does not need.
    """

    network: nn.Module
    head: str

    def describe(self) -> dict[str, Any]:
        """Its name as ``backbone``, and its preprocessing."""

    def pretrained(self) -> dict[str, Tensor]:
        """The library's own weights, which it downloads."""

    def address(self) -> str:
        """Where these weights are, for one who must fetch them by hand."""


@runtime_checkable
class FeatureExtractor(Protocol):
    """A kind of features that a network makes of an image."""

    @property
    def backbone(self) -> Backbone:
        """The network."""

    @property
    def regions(self) -> int:
        """R, the most regions of an image."""

    @property
    def dim(self) -> int:
        """D, of a region's features."""

    def describe(self) -> dict[str, Any]:
        """Backbone, layer, preprocessing: what the store's metadata say of it."""

    def preprocess(self, image: Image.Image) -> Any:
        """What ``extract`` reads of an RGB image, such as its pixels (3, H, W) uint8. Runs in several threads."""

    def extract(self, images: Sequence[Any]) -> list[ImageRegions]:
        """The regions of each preprocessed image, on the network's device."""


@runtime_checkable
class GridExtractor(FeatureExtractor, Protocol):
    """A kind whose regions are the cells of a map, as many in each image of one size: one graph makes them."""

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, 3, H, W) uint8 to the features (B, R, D) and boxes (R, 4) of their cells."""


class FeatureSource(Protocol):
    """Where the regions of a dataset's images come from.

    Attributes:
        regions: R, the most regions of an image.
        dim: D, of a region's features.
    """

    regions: int
    dim: int

    def describe(self) -> dict[str, Any]:
        """How they are made: what the store's metadata say."""

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """Each of these images once, in an order that depends on the source alone.

        Raises:
            ValueError: a row is not as it should be; names it.
        """


@runtime_checkable
class FeatureReader(Protocol):
    """A kind of features that somebody has extracted: they are read, and no image is looked at."""

    def open(self, dataset: Dataset, source: Path | None) -> FeatureSource:
        """Open the user's file or folder ``source``, or that which the dataset itself names.

        Raises:
            ValueError: it is not there, is not in its format, or lacks an image of the dataset.
        """


def in_batches_of_one_shape(images: Sequence[Tensor], function: Callable[[Tensor], Sequence[T]]) -> list[T]:
    """``function`` of stacked images, for each group of images of the same shape; results in the images' order.

    Nothing is padded, so no border is seen that the image does not have.
    """
    groups: dict[torch.Size, list[int]] = defaultdict(list)
    for position, image in enumerate(images):
        groups[image.shape].append(position)
    results: dict[int, T] = {}
    for positions in groups.values():
        results |= zip(positions, function(torch.stack([images[p] for p in positions])), strict=True)
    return [results[position] for position in range(len(images))]
