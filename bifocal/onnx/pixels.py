"""Image files as arrays that graphs read, and the resizing of images, without the graphs."""

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bifocal.onnx.image_limits import MAX_BYTES, max_pixels
from bifocal.onnx.images import image_size, open_image

ImageFile = str | bytes
"""An image file: its bytes, or their base64."""
DECODED_SCALE = 2
"""A JPEG is decoded at a fraction of its resolution if each side keeps this many times the pixels
of the result."""
LONG = 4
"""Ratio of the sides above which a crop spares work; its pixels differ by rounding from a crop
after resizing."""
Resize = Literal["square", "aspect", "limit"]
"""``square``: size x size, which changes the aspect ratio. ``aspect``: the longer side becomes
size.
``limit``: a longer side above size becomes size; a smaller image stays as it is."""
ResizeOrCrop = Literal["square", "aspect", "limit", "crop"]
"""As ``Resize``, and ``crop``: the shorter side becomes size / crop_pct of the weights, and the
network reads the central size x size square. The rest of the image is cut off."""
Array = NDArray[np.uint8]


def file_bytes(image: ImageFile) -> bytes:
    """Return the bytes of an image file; raise ``ValueError`` for a string that is not base64."""
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    try:
        return base64.b64decode(image, validate=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error


def file_size(image: ImageFile) -> int:
    """Return the number of bytes of an image file without decoding its base64: four characters hold
    three bytes."""
    return len(image) * 3 // 4 if isinstance(image, str) else len(image)


def gray_image() -> str:
    """Return a small image of one color, as an example."""
    file = BytesIO()
    Image.new("RGB", (8, 8), "gray").save(file, "JPEG")
    return base64.b64encode(file.getvalue()).decode()


def resize_image(image: Image.Image, size: int, resize: Resize, interpolation: str) -> Image.Image:
    """Resize an image to ``size`` pixels, by Pillow's ``interpolation`` ("bicubic")."""
    resized = resized_size(*image.size, size, resize)
    return (
        image
        if image.size == resized
        else image.resize(resized, Image.Resampling[interpolation.upper()])
    )


def resized_size(width: int, height: int, size: int, resize: Resize) -> tuple[int, int]:
    """Return the width and height of a resized image, in pixels."""
    if resize == "square":
        return size, size
    longer = max(width, height)
    if resize == "limit" and longer <= size:
        return width, height
    return max(1, round(width * size / longer)), max(1, round(height * size / longer))


def resize_shorter(image: Image.Image, shorter: int, interpolation: str) -> Image.Image:
    """Resize an image so that its shorter side has ``shorter`` pixels, as
    ``torchvision.transforms.Resize``."""
    size = shorter_size(*image.size, shorter)
    return (
        image if image.size == size else image.resize(size, Image.Resampling[interpolation.upper()])
    )


def resize_square(image: Image.Image, shorter: int, side: int, interpolation: str) -> Image.Image:
    """Return the central square of ``resize_shorter``'s image; above ``LONG``, an image is cropped
    before resizing."""
    width, height = shorter_size(*image.size, shorter)
    left, top, right, bottom = center_box(width, height, side)
    if max(width, height) <= LONG * min(width, height):
        return resize_shorter(image, shorter, interpolation).crop((left, top, right, bottom))
    x, y = image.width / width, image.height / height
    box = (left * x, top * y, min(right * x, image.width), min(bottom * y, image.height))
    return image.resize((side, side), Image.Resampling[interpolation.upper()], box)


def shorter_size(width: int, height: int, shorter: int) -> tuple[int, int]:
    """Return width and height of an image after ``resize_shorter``."""
    longer = int(shorter * max(width, height) / min(width, height))
    return (shorter, longer) if width <= height else (longer, shorter)


def center_box(width: int, height: int, side: int) -> tuple[int, int, int, int]:
    """Return x0 y0 x1 y1 of the central square, in pixels, as
    ``torchvision.transforms.CenterCrop``."""
    left, top = round((width - side) / 2), round((height - side) / 2)
    return left, top, left + side, top + side


class DecodedImage(NamedTuple):
    """Pixels (3, H, W) uint8 as the graphs read them; the size of the original image after EXIF
    rotation."""

    pixels: Array
    width: int
    height: int


def decode_pixels(
    file: bytes,
    preprocessing: Mapping[str, Any],
    most: int | None = None,
    max_bytes: int = MAX_BYTES,
    formats: tuple[str, ...] | None = None,
) -> DecodedImage:
    """Decode an image file as the graphs read it; reject one of more than ``most`` pixels, see
    ``open_header``."""
    arguments = dict(preprocessing)
    size = image_size(BytesIO(file), most or max_pixels(), max_bytes, formats)
    image = open_image(file, None, arguments.pop("decoded_side", None))
    return DecodedImage(resized_pixels(image, **arguments), *size)


def read_pixels(
    image: ImageFile,
    size: int,
    interpolation: str,
    scaled: int | None = None,
    decoded_side: int | None = None,
    resize: Resize = "square",
) -> Array:
    """Return an image file's pixels (3, H, W) uint8: a central square of the shorter side
    ``scaled``, or resized."""
    try:
        decoded = open_image(file_bytes(image), max_pixels(), decoded_side)
    except ValueError as error:
        hint = "; expected the base64 of an image file" if isinstance(image, str) else ""
        raise ValueError(f"an image cannot be read: {error}{hint}") from error
    return resized_pixels(decoded, size, interpolation, scaled, resize)


def tried(preprocessing: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``read_pixels`` that read an image; raise its error for others."""
    read_pixels(gray_image(), **preprocessing)
    return preprocessing


def resized_pixels(
    image: Image.Image,
    size: int,
    interpolation: str,
    scaled: int | None = None,
    resize: Resize = "square",
) -> Array:
    """Return the pixels (3, H, W) uint8 of a decoded image, see ``read_pixels``."""
    if scaled is not None:
        image = resize_square(image, scaled, size, interpolation)
    else:
        image = resize_image(image, size, resize, interpolation)
    return np.array(image).transpose(2, 0, 1)


def read_squares(content: bytes, sizes: Sequence[int], interpolation: str) -> list[Array]:
    """Return an image file as squares (3, size, size) uint8."""
    image = open_image(content, max_pixels(), DECODED_SCALE * max(sizes))
    return [
        np.array(resize_image(image, size, "square", interpolation)).transpose(2, 0, 1)
        for size in sizes
    ]
