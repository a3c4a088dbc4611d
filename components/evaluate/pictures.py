"""Thumbnails of a dataset's images."""

from functools import lru_cache

from PIL import Image

from bifocal.datasets import Dataset, open_image
from bifocal.report.pictures import thumbnail

SIDE = 240


class Thumbnails:
    """Images of a dataset as data URIs, each read once.

    Args:
        dataset: whose corpus may publish features alone; such an image is a grey square.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.of = lru_cache(maxsize=None)(self._of)

    def open(self, image_id: str) -> Image.Image:
        """The image in its own size."""
        try:
            path = self.dataset.image_path(image_id)
        except ValueError:
            return Image.new("RGB", (SIDE, SIDE), (128, 128, 128))
        return open_image(path)

    def _of(self, image_id: str, side: int = SIDE) -> str:
        return thumbnail(self.open(image_id), side)
