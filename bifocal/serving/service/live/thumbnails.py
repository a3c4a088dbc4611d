"""Small pictures of the items, without the metadata of their files."""

import threading
from collections import OrderedDict
from collections.abc import Container
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from bifocal.datasets.image_formats import image_formats
from bifocal.datasets.images import open_image

SIDES = (256, 512, 1024)
"""Longest sides of a thumbnail, pixels."""
QUALITY = 80


class Thumbnails:
    """Thumbnails in memory; nothing is written to disk."""

    def __init__(self, max_bytes: int = 64 * 2**20, max_pixels: int = 50_000_000) -> None:
        self.max_bytes, self.max_pixels = max_bytes, max_pixels
        self._kept: OrderedDict[tuple[str, int], tuple[int, bytes]] = OrderedDict()
        self._size, self._lock = 0, threading.Lock()

    def get(self, item_id: str, file: Path, side: int) -> bytes:
        """Return the JPEG of an image whose longer side has at most ``side`` pixels."""
        try:
            changed = file.stat().st_mtime_ns
        except OSError as error:
            self.drop(item_id)
            raise ValueError(f"{file.name}: {error.strerror}") from error
        with self._lock:
            state, kept = self._kept.get((item_id, side), (None, b""))
            if state == changed:
                self._kept.move_to_end((item_id, side))
                return kept
        buffer = BytesIO()
        small_picture(file, side, self.max_pixels).save(buffer, "JPEG", quality=QUALITY)
        made = buffer.getvalue()
        with self._lock:
            self._remove(item_id, side)
            self._kept[item_id, side] = changed, made
            self._size += len(made)
            while self._size > self.max_bytes:
                self._remove(*next(iter(self._kept)))
        return made

    def drop(self, item_id: str) -> None:
        """Remove the thumbnails of an item."""
        with self._lock:
            for side in SIDES:
                self._remove(item_id, side)

    def keep(self, item_ids: Container[str]) -> None:
        """Remove the thumbnails of all other items."""
        with self._lock:
            for item_id, side in [key for key in self._kept if key[0] not in item_ids]:
                self._remove(item_id, side)

    def _remove(self, item_id: str, side: int) -> None:
        self._size -= len(self._kept.pop((item_id, side), (0, b""))[1])


def media_type(file: Path) -> str:
    """Return the media type of an image file by its header; ``ValueError`` for any other file."""
    try:
        with Image.open(file, formats=image_formats()) as image:
            return str(image.get_format_mimetype())
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file.name} is not an image that can be read") from error


def small_picture(file: Path, side: int, max_pixels: int) -> Image.Image:
    """Return an image file with at most ``side`` pixels along its longer side, in sRGB and without any metadata."""
    image = open_image(file, max_pixels, side)
    image.thumbnail((side, side))
    return Image.fromarray(np.asarray(image))  # Pillow would copy the metadata of a decoded image to the new file
