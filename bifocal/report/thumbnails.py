"""Thumbnails of a dataset's images."""

from functools import lru_cache

from PIL import Image

from bifocal.datasets import Dataset
from bifocal.onnx.images import open_image
from bifocal.report.pictures import thumbnail

SIDE = 240


class Thumbnails:
    """Images of a dataset as data URIs, each read once per size; images without a file become gray squares."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.uri = lru_cache(maxsize=None)(self._uri)

    def open(self, image_id: str, side: int) -> Image.Image:
        """Return the image, decoded at a lower resolution if each side keeps at least ``side`` pixels."""
        try:
            path = self.dataset.image_path(image_id)
        except ValueError:
            return Image.new("RGB", (SIDE, SIDE), (128, 128, 128))
        return open_image(path, side=side)

    def _uri(self, image_id: str, side: int = SIDE) -> str:
        return thumbnail(self.open(image_id, side), side)
