"""Image files as arrays that graphs read, without the graphs: a process that only decodes imports this module."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bifocal.onnx.image_files import ImageFile, file_bytes
from bifocal.onnx.image_header import MAX_BYTES, image_size
from bifocal.onnx.images import decode_image
from bifocal.onnx.resizing import DECODED_SCALE, Resize, resize_image, resize_square

MAX_PIXELS = 50_000_000
Array = NDArray[np.uint8]


class DecodedImage(NamedTuple):
    """Pixels (3, H, W) uint8 as the graphs read them; the size of the original image after EXIF rotation."""

    pixels: Array
    width: int
    height: int


def decode_pixels(
    file: bytes, preprocessing: Mapping[str, Any], max_pixels: int | None = MAX_PIXELS, max_bytes: int = MAX_BYTES
) -> DecodedImage:
    """Decode an image file as the graphs read it, or reject a too large one by its header."""
    arguments = dict(preprocessing)
    size = image_size(BytesIO(file), max_pixels, max_bytes)
    image = decode_image(BytesIO(file), max_pixels, arguments.pop("decoded_side", None))
    return DecodedImage(resized_pixels(image, **arguments), *size)


def read_pixels(
    image: ImageFile,
    size: int,
    interpolation: str,
    scaled: int | None = None,
    decoded_side: int | None = None,
    resize: Resize = "square",
) -> Array:
    """Return an image file's pixels (3, H, W) uint8: a central square of the shorter side ``scaled``, or resized."""
    try:
        decoded = decode_image(BytesIO(file_bytes(image)), MAX_PIXELS, decoded_side)
    except ValueError as error:
        raise ValueError(f"an image cannot be read: {error}; expected the base64 of an image file") from error
    return resized_pixels(decoded, size, interpolation, scaled, resize)


def resized_pixels(
    image: Image.Image, size: int, interpolation: str, scaled: int | None = None, resize: Resize = "square"
) -> Array:
    """Return the pixels (3, H, W) uint8 of a decoded image, see ``read_pixels``."""
    if scaled is not None:
        image = resize_square(image, scaled, size, interpolation)
    else:
        image = resize_image(image, size, resize, interpolation)
    return np.array(image).transpose(2, 0, 1)


def read_squares(content: bytes, sizes: Sequence[int], interpolation: str) -> list[Array]:
    """Return an image file as squares (3, size, size) uint8."""
    image = decode_image(BytesIO(content), MAX_PIXELS, DECODED_SCALE * max(sizes))
    return [np.array(resize_image(image, size, "square", interpolation)).transpose(2, 0, 1) for size in sizes]
