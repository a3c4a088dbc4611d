"""Image files are checked by their header, then decoded as RGB; only this module opens them."""

import hashlib
import os
import re
import shutil
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError, features

from bifocal.onnx.files import open_regular
from bifocal.onnx.image_limits import (
    MAX_BYTES,
    check_complete,
    check_header,
    check_sides,
)
from bifocal.onnx.image_limits import max_pixels as max_pixels  # callers open images with it
from bifocal.onnx.metadata import (
    TURNS,
    LargeImageError,
    orientation,
    srgb_transform,
    without_metadata,
)

# Pillow reads more formats; some of them start other programs (EPS) or are not photographs.
ALWAYS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")
UPLOADS = ("JPEG", "PNG", "WEBP", "GIF", "AVIF", "HEIF")
"""Formats of files that clients of a service send; the others have decoders that nobody needs
there."""
HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
"""First brand of the photographs that phones write, at byte 8 of the file."""
LARGE = 50_000_000
"""Pixels above which images are decoded one at a time, so that their memory does not add up."""
TURNED = (5, 6, 7, 8)
"""Orientations that exchange width and height."""
MAX_16_BIT = 2**16 - 1
BAND = 2**22
"""Pixels that are converted at a time."""
EXIF_ITEM = re.compile(rb"(infe\x02.{7})Exif", re.DOTALL)
"""Type of the EXIF data in a list of the contents of a HEIF or AVIF file."""

# This module applies its own limits. Damaged metadata are ignored, and Pillow's warnings of them
# name no file.
Image.MAX_IMAGE_PIXELS = None
warnings.filterwarnings("ignore", module=r"PIL\.")
_large = threading.Lock()


@cache
def image_formats() -> tuple[str, ...]:
    """Return Pillow's names of the formats: AVIF if Pillow has its codec, HEIF with the extra
    ``heic``."""
    formats = list(ALWAYS)
    if features.check("avif"):
        formats.append("AVIF")
    if find_spec("pillow_heif") is not None:
        from pillow_heif import register_heif_opener  # an extra

        register_heif_opener()
        formats.append("HEIF")
    return tuple(formats)


def unsupported(file: IO[bytes], formats: tuple[str, ...]) -> str:
    """Return why an open file has none of the formats, and what to do."""
    file.seek(4)
    start = file.read(8)
    if start.startswith(b"ftyp") and start[4:] in HEIF_BRANDS and "HEIF" not in image_formats():
        return "a HEIC photograph: pip install pillow-heif, or save it as JPEG"
    return f"not an image in a supported format ({', '.join(formats)})"


class UnsupportedImageError(ValueError):
    """The file has none of the formats."""


@contextmanager
def open_header(
    file: IO[bytes],
    max_pixels: int | None = None,
    max_bytes: int = MAX_BYTES,
    formats: tuple[str, ...] | None = None,
) -> Iterator[ImageFile.ImageFile]:
    """Yield Pillow's image of an open file before its pixels are decoded.

    Args:
        max_pixels: of the image.
        max_bytes: of the file.
        formats: by default all ``image_formats``.

    Raises:
        UnsupportedImageError: the file has no supported format.
        LargeImageError: the image is above a limit.
        ValueError: the header is damaged, or the caller's decoder fails; the message does not
            contain the path.
    """
    chosen = tuple(name for name in image_formats() if formats is None or name in formats)
    size = file.seek(0, os.SEEK_END)
    if not size:
        raise ValueError("the file is empty")
    if size > max_bytes:
        raise LargeImageError(
            f"too large: a file of {size} bytes, at most {max_bytes} are accepted"
        )
    try:
        pixels, metadata = without_metadata(file)
        with _opened(pixels, chosen) as image:
            image.info.update(metadata)
            check_header(image, pixels, size, max_pixels)
            yield image
    except UnidentifiedImageError as error:
        raise UnsupportedImageError(unsupported(file, chosen)) from error
    except MemoryError as error:
        raise LargeImageError("too large: decoding it needs too much memory") from error
    except ValueError:
        raise
    except Exception as error:  # Pillow's readers raise many exception types on damaged files.
        raise ValueError(f"cannot be decoded: {error or type(error).__name__}") from error


def image_size(
    file: IO[bytes],
    max_pixels: int | None = None,
    max_bytes: int = MAX_BYTES,
    formats: tuple[str, ...] | None = None,
) -> tuple[int, int]:
    """Return width and height of an open image file in pixels after EXIF rotation; see
    ``open_header``."""
    with open_header(file, max_pixels, max_bytes, formats) as image:
        width, height = image.size
        # Pillow's size of a TIFF is upright.
        return (
            (height, width)
            if image.format != "TIFF" and orientation(image) in TURNED
            else (width, height)
        )


def _opened(file: IO[bytes], formats: tuple[str, ...]) -> ImageFile.ImageFile:
    try:
        file.seek(0)
        return Image.open(file, formats=formats)
    except Exception:  # the readers of HEIF and AVIF write the EXIF data anew
        file.seek(0)
        plain, count = EXIF_ITEM.subn(rb"\1free", file.read())
        if not count:
            raise
        return Image.open(BytesIO(plain), formats=formats)


@dataclass(frozen=True)
class InspectedImage:
    """A complete image file: its size in pixels after EXIF rotation, and the SHA-256 of its
    bytes."""

    width: int
    height: int
    sha256: str


def open_image(
    image: Path | bytes | Image.Image, max_pixels: int | None = None, side: int | None = None
) -> Image.Image:
    """Decode the first frame of an image as RGB, rotated by its EXIF orientation.

    16-bit gray is scaled to 8 bits, CMYK is converted, transparent pixels become white, and colors
    of another profile become sRGB. Metadata that are not valid are ignored.

    Args:
        image: a file, its bytes, or an image of Pillow, which keeps the orientation and the profile
            of its file until it is saved. Pillow's image itself does not change.
        max_pixels: reject a larger image by its header, before it is decoded.
        side: decode a JPEG at 1/2, 1/4 or 1/8 of its resolution, as long as each side keeps this
            many pixels.

    Raises:
        ValueError: the file is not a complete image; the message says why.
        TypeError: ``image`` is something else.
    """
    if not isinstance(image, Path):
        return decode_image(image, max_pixels, side)
    try:
        with open_regular(image, MAX_BYTES) as file:
            return decode_image(file, max_pixels, side)
    except (LargeImageError, UnsupportedImageError) as error:
        raise type(error)(f"{image}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{image}: {error}") from error


def inspect_image(
    path: Path, max_pixels: int, size: tuple[int, int] | None = None, copy: Path | None = None
) -> InspectedImage:
    """Decode, hash and optionally copy an image file in one pass; a bad image or size (after EXIF)
    is an error."""
    with open_regular(path, MAX_BYTES) as file:
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
    return InspectedImage(width, height, sha256)


def decode_image(
    image: IO[bytes] | bytes | Image.Image, max_pixels: int | None, side: int | None = None
) -> Image.Image:
    """Decode an open file as ``open_image`` does; the error message does not contain the path."""
    if isinstance(image, bytes):
        image = BytesIO(image)
    if isinstance(image, Image.Image):
        image = unread_file(image) or image
    elif not hasattr(image, "read"):
        raise TypeError(
            f"an image is a Path, the bytes of a file or an image of Pillow, got {type(image)}"
        )
    decoded, turn = (
        _converted(image, max_pixels)
        if isinstance(image, Image.Image)
        else _decoded(image, max_pixels, side)
    )
    decoded.info = {}  # or the next reader would turn and convert it again
    return decoded if turn == 1 else decoded.transpose(TURNS[turn])


def unread_file(image: Image.Image) -> BytesIO | None:
    """Return the file of Pillow's image unless its pixels were changed: our decoder differs from
    Pillow's."""
    file = getattr(image, "fp", None)
    if file is None or file.closed or not getattr(image, "tile", None) or image.tell():
        return None
    position = file.tell()
    file.seek(0)
    content = BytesIO(file.read())
    file.seek(position)
    return content


def _converted(image: Image.Image, max_pixels: int | None) -> tuple[Image.Image, int]:
    """Return Pillow's image as RGB, before it is turned, and its orientation."""
    check_sides(image, max_pixels)
    try:
        image.load()
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"cannot be decoded: {error or type(error).__name__}") from error
    # Pillow turns a TIFF when it reads the pixels.
    return _to_rgb(image), 1 if image.format == "TIFF" else orientation(image)


def _decoded(file: IO[bytes], max_pixels: int | None, side: int | None) -> tuple[Image.Image, int]:
    """Return an image as RGB, before it is turned, and its orientation."""
    with open_header(file, max_pixels) as image:
        turn = orientation(image)
        if image.format == "TIFF":
            with suppress(
                Exception
            ):  # Pillow would turn the image itself, and write its metadata anew
                exif = image.getexif()
                for tag in list(exif):
                    del exif[tag]
        if side is not None:
            # draft() has an effect only before the pixels are decoded.
            image.draft(None, (side, side))
        with _large if image.width * image.height > LARGE else nullcontext():
            image.load()
            check_complete(image, file)
            return _to_rgb(
                image if image.format != "TIFF" else image.copy()
            ), turn  # the size of a copy is not turned


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image in bands: the copies of some conversions would need four times its
    memory."""
    if image.mode == "F":
        raise ValueError("floating-point pixels of unknown range; save the image with 8 or 16 bits")
    convert = srgb_transform(image.info.get("icc_profile") or b"", image.mode)
    if convert is None and image.mode == "RGB" and not image.has_transparency_data:
        return image.copy()
    (width, height), converted = image.size, Image.new("RGB", image.size)
    rows = max(1, BAND // width)
    for top in range(0, height, rows):
        band = image.crop((0, top, width, min(height, top + rows)))
        if convert is None or convert[0] != "CMYK":
            band = _band_to_rgb(band)
        converted.paste(
            band if convert is None else convert[1].apply(band.convert(convert[0])), (0, top)
        )
    return converted


def _band_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > MAX_16_BIT:
            raise ValueError("32-bit pixels of unknown range; save the image with 8 or 16 bits")
        return Image.fromarray(
            (values.astype(np.uint32) * 255 // MAX_16_BIT).astype(np.uint8)
        ).convert("RGB")
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", opaque.size, "white"), opaque).convert("RGB")
    return image.convert("RGB")
