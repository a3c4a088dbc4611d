"""Image files that training decodes, for image encoders that train end to end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features.base import ImageRegions
from bifocal.features.extractors.base import TimmExtractor
from bifocal.features.store import IMAGE_FILES
from bifocal.onnx.pixels import Resize, resized_size


class ImageFiles(TimmExtractor):
    """Sizes of the resized images, with the initial weights of an encoder's backbone; no pixels are
    stored.

    Training and evaluation decode and resize the image files of the dataset with ``open_features``,
    which returns the batches that ``Pixels`` gives. An image takes 40 bytes of disk instead of 3
    size^2, and as much processor time per epoch as its decoding. The only region of an image holds
    its width and height in pixels.

    Arguments: see ``TimmExtractor``. With the resize "limit", an encoder that crops at random
    (``BEANEncoder``) crops the original image, as in VSE++ and BEAN (section 4.1): no side of
    COCO's images has more than 640 pixels.

    Raises:
        ValueError: timm has no such model.

    Example:
        >>> extractor = ImageFiles(size=64, backbone="resnet10t")
        >>> (image,) = extractor.extract([torch.zeros(3, 48, 64, dtype=torch.uint8)])
        >>> image.features.tolist()
        [[64, 48]]
    """

    dtype = "int32"
    keeps_weights = True
    regions, dim = 1, 2

    def __init__(
        self,
        size: int = 640,
        resize: Resize = "limit",
        backbone: str = "resnet152.tv_in1k",
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, size, resize, model_arguments=model_arguments)
        self.resize = resize

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"layer": IMAGE_FILES, "dtype": self.dtype}

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return the width and height (1, 2) of each image, int32."""
        return [_size(image.shape[2], image.shape[1]) for image in images]

    def sizes(self, dataset: Dataset) -> "ImageSizes":
        """Return the source that knows the sizes from the tables of ``dataset``; no file is
        decoded."""
        return ImageSizes(self, dataset)


@dataclass(frozen=True)
class ImageSizes:
    """Sizes of a dataset's images after the extractor's resizing, as a source of features."""

    extractor: ImageFiles  # says how images are resized
    dataset: Dataset  # knows the size of every image file

    regions, dim = ImageFiles.regions, ImageFiles.dim

    def describe(self) -> dict[str, Any]:
        return self.extractor.describe()

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """Yield the size of each image, in the order of ``image_ids``."""
        table, backbone = self.dataset.images, self.extractor.backbone
        rows = zip(table["width"], table["height"], table["path"], strict=True)
        sizes = dict(zip(table["image_id"], rows, strict=True))
        for image_id in image_ids:
            width, height, path = sizes[image_id]
            if not isinstance(path, str):
                raise ValueError(
                    f"image {image_id!r} has no file: its corpus publishes only features"
                )
            yield (
                image_id,
                _size(*resized_size(int(width), int(height), backbone.size, self.extractor.resize)),
            )


def _size(width: int, height: int) -> ImageRegions:
    return ImageRegions(torch.tensor([[width, height]], dtype=torch.int32))
