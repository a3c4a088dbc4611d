"""Image files as a model takes them: their bytes, or the base64 of their bytes."""

import base64
from io import BytesIO

from PIL import Image

ImageFile = str | bytes
"""An image file: its bytes, or their base64."""


def file_bytes(image: ImageFile) -> bytes:
    """Return the bytes of an image file; raise ``ValueError`` for a string that is not base64."""
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    try:
        return base64.b64decode(image, validate=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error


def file_size(image: ImageFile) -> int:
    """Return the number of bytes of an image file without decoding its base64: four characters hold three bytes."""
    return len(image) * 3 // 4 if isinstance(image, str) else len(image)


def gray_image() -> str:
    """Return a small image of one color, as an example."""
    file = BytesIO()
    Image.new("RGB", (8, 8), "gray").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
