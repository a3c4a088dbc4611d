"""Decode image files as RGB, with an error that says why a file cannot be used."""

import hashlib
import shutil
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from bifocal.onnx.image_header import LargeImageError, UnsupportedImageError, check_complete, open_header

MAX_16_BIT = 2**16 - 1
BAND = 2**22
"""Pixels that are converted at a time."""


@dataclass(frozen=True)
class ImageFile:
    """A complete image file: its size in pixels after EXIF rotation, and the SHA-256 of its bytes."""

    width: int
    height: int
    sha256: str


def open_image(path: Path, max_pixels: int | None = None, side: int | None = None) -> Image.Image:
    """Decode the first frame of an image file as RGB, rotated by its EXIF orientation.

    16-bit gray is scaled to 8 bits, CMYK is converted, transparent pixels become white.

    Args:
        max_pixels: reject a larger image by its header, before it is decoded; Pillow's own limit applies as well.
        side: decode a JPEG at 1/2, 1/4 or 1/8 of its resolution, as long as each side keeps this many pixels.

    Raises:
        ValueError: the file is not a complete image; the message says why.
    """
    try:
        with _open(path) as file:
            return decode_image(file, max_pixels, side)
    except (LargeImageError, UnsupportedImageError) as error:
        raise type(error)(f"{path}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def inspect_image(
    path: Path, max_pixels: int, size: tuple[int, int] | None = None, copy: Path | None = None
) -> ImageFile:
    """Decode, hash and optionally copy an image file in one pass; a bad image or size (after EXIF) is an error."""
    with _open(path) as file:
        width, height = decode_image(file, max_pixels).size
        if size not in (None, (width, height)):
            raise ValueError(f"{width} x {height} pixels, but its boxes refer to {size}")
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if copy is not None:
            file.seek(0)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with copy.open("wb") as target:
                shutil.copyfileobj(file, target)
    return ImageFile(width, height, sha256)


def _open(path: Path) -> BufferedReader:
    try:
        if path.is_fifo():
            raise ValueError("a named pipe, expected a file")  # opening it waits for a writer
        return path.open("rb")
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def decode_image(file: IO[bytes], max_pixels: int | None, side: int | None = None) -> Image.Image:
    """Decode an open file as ``open_image`` does; the error message does not contain the path."""
    with open_header(file, max_pixels) as image:
        if side is not None:
            # draft() has an effect only before the pixels are decoded.
            image.draft(None, (side, side))
        image.load()
        check_complete(image, file)
        ImageOps.exif_transpose(image, in_place=True)
        return _to_rgb(image)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image in bands: the copies of some conversions would need four times its memory."""
    if image.mode == "F":
        raise ValueError("floating-point pixels of unknown range; save the image with 8 or 16 bits")
    if image.mode == "RGB" and not image.has_transparency_data:
        return image.copy()
    (width, height), converted = image.size, Image.new("RGB", image.size)
    rows = max(1, BAND // width)
    for top in range(0, height, rows):
        band = image.crop((0, top, width, min(height, top + rows)))
        converted.paste(_band_to_rgb(band), (0, top))
    return converted


def _band_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > MAX_16_BIT:
            raise ValueError("32-bit pixels of unknown range; save the image with 8 or 16 bits")
        return Image.fromarray((values.astype(np.uint32) * 255 // MAX_16_BIT).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", opaque.size, "white"), opaque).convert("RGB")
    return image.convert("RGB")
