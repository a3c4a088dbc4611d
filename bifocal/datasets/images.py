"""Opening images: what works becomes RGB, what does not says why."""

import hashlib
import shutil
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Pillow knows more, some of which start other programs (EPS) or are no pictures.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")
SIXTEEN_BITS = 2**16 - 1


@dataclass(frozen=True)
class ImageFile:
    """A file that is a whole image: its size in pixels after EXIF rotation, and the SHA-256 of its bytes."""

    width: int
    height: int
    sha256: str


def open_image(path: Path, max_pixels: int | None = None) -> Image.Image:
    """Decode the first frame of an image file as RGB, turned as its EXIF orientation says.

    16-bit greys are scaled to 8 bits, CMYK is converted, transparency is laid on white.

    Args:
        max_pixels: refuse a larger image by its header, before anything is decoded; Pillow's own limit holds anyway.

    Raises:
        ValueError: the file is no image that can be decoded whole; says why.
    """
    try:
        with _opened(path) as file:
            return decode_image(file, max_pixels)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def inspect_image(
    path: Path, max_pixels: int, size: tuple[int, int] | None = None, copy: Path | None = None
) -> ImageFile:
    """Open a file once: decode it whole, hash it, and copy it to ``copy`` if that is given.

    Args:
        size: (width, height) that it must have, in pixels after EXIF rotation.

    Raises:
        ValueError: as ``open_image``, without the path; or it has another size.
    """
    with _opened(path) as file:
        width, height = decode_image(file, max_pixels).size
        if size not in (None, (width, height)):
            raise ValueError(f"{width} x {height} pixels, but its boxes are for {size}")
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if copy is not None:
            file.seek(0)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with copy.open("wb") as target:
                shutil.copyfileobj(file, target)
    return ImageFile(width, height, sha256)


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def decode_image(file: IO[bytes], max_pixels: int | None) -> Image.Image:
    """As ``open_image``, of an open file, which the error does not name."""
    if not file.read(1):
        raise ValueError("the file is empty")
    file.seek(0)
    try:
        with Image.open(file, formats=FORMATS) as image:
            width, height = image.size
            if max_pixels is not None and width * height > max_pixels:
                raise ValueError(f"{width} x {height} pixels, more than max_pixels {max_pixels}")
            image.load()
            return _rgb(ImageOps.exif_transpose(image))
    except UnidentifiedImageError as error:
        raise ValueError(f"no image in a format that is read here ({', '.join(FORMATS)})") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"too many pixels: {error}") from error
    except ValueError:
        raise
    except Exception as error:  # Pillow's decoders raise almost anything on a damaged file.
        raise ValueError(f"cannot be decoded: {error or type(error).__name__}") from error


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("floating-point pixels, whose range is unknown; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.asarray(image, dtype=np.int64)
        if values.min() < 0 or values.max() > SIXTEEN_BITS:
            raise ValueError("32-bit pixels, whose range is unknown; save it with 8 or 16 bits")
        return Image.fromarray((values * 255 // SIXTEEN_BITS).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", opaque.size, "white"), opaque).convert("RGB")
    return image.convert("RGB")
