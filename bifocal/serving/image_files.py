"""Image files as a model takes them: their bytes, or the base64 of their bytes."""

import base64

ImageFile = str | bytes
"""An image file: its bytes, or their base64."""


def file_bytes(image: ImageFile) -> bytes:
    """Return the bytes of an image file."""
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    try:
        return base64.b64decode(image, validate=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error


def file_size(image: ImageFile) -> int:
    """Return the number of bytes of an image file without decoding its base64: four characters hold three bytes."""
    return len(image) * 3 // 4 if isinstance(image, str) else len(image)
