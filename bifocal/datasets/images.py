"""Decode image files as RGB, with an error that says why a file cannot be used."""

import hashlib
import shutil
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from bifocal.datasets.image_formats import image_formats, unsupported

MAX_16_BIT = 2**16 - 1
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)
"""EXIF tag of the orientation, and its values that exchange width and height."""
MAX_SIDE, MAX_RATIO = 65_535, 200
"""Longest side in pixels, and largest ratio of the sides: a file of 69 bytes may declare 1 x 50,000,000 pixels."""


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


def image_size(file: IO[bytes]) -> tuple[int, int]:
    """Return width and height of an open image file in pixels after EXIF rotation, from its header."""
    try:
        with Image.open(file, formats=image_formats()) as image:
            width, height = image.size
            return (height, width) if image.getexif().get(ORIENTATION) in TURNED else (width, height)
    except ValueError:
        raise
    except Exception as error:  # Pillow's readers raise many exception types on damaged headers.
        raise ValueError(f"cannot be decoded: {error or type(error).__name__}") from error


def check_sides(width: int, height: int) -> None:
    """Raise ``ValueError`` for an image whose memory, before or after resizing, its pixels do not limit."""
    longer, shorter = max(width, height), min(width, height)
    if longer > MAX_SIDE or longer > MAX_RATIO * shorter:
        raise ValueError(
            f"{width} x {height} pixels, at most {MAX_SIDE} on a side and {MAX_RATIO} times the other are accepted"
        )


def _open(path: Path) -> BufferedReader:
    try:
        if path.is_fifo():
            raise ValueError("a named pipe, expected a file")  # opening it waits for a writer
        return path.open("rb")
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def decode_image(file: IO[bytes], max_pixels: int | None, side: int | None = None) -> Image.Image:
    """Decode an open file as ``open_image`` does; the error message does not contain the path."""
    if not file.read(1):
        raise ValueError("the file is empty")
    file.seek(0)
    try:
        with Image.open(file, formats=image_formats()) as image:
            width, height = image.size
            check_sides(width, height)
            if max_pixels is not None and width * height > max_pixels:
                raise ValueError(f"{width} x {height} pixels, more than max_pixels {max_pixels}")
            if side is not None:
                # draft() has an effect only before the pixels are decoded.
                image.draft(None, (side, side))
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))
    except UnidentifiedImageError as error:
        raise ValueError(unsupported(file)) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"too many pixels: {error}") from error
    except ValueError:
        raise
    except Exception as error:  # Pillow's decoders raise many exception types on damaged files.
        raise ValueError(f"cannot be decoded: {error or type(error).__name__}") from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("floating-point pixels of unknown range; save the image with 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.asarray(image, dtype=np.int64)
        if values.min() < 0 or values.max() > MAX_16_BIT:
            raise ValueError("32-bit pixels of unknown range; save the image with 8 or 16 bits")
        return Image.fromarray((values * 255 // MAX_16_BIT).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", opaque.size, "white"), opaque).convert("RGB")
    return image.convert("RGB")
