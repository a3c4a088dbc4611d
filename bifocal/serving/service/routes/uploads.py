"""Image files that clients send: checked by their header before they are decoded, and never stored."""

from io import BytesIO

from PIL import Image, UnidentifiedImageError
from starlette.exceptions import HTTPException

from bifocal.datasets.image_formats import image_formats, unsupported
from bifocal.datasets.images import check_sides
from bifocal.serving.limits import Limits

BINARY = "application/octet-stream"


def check_content_type(content_type: str) -> None:
    """Raise 415 unless a header ``Content-Type`` names an image or binary data."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != BINARY and not kind.startswith("image/"):
        raise HTTPException(415, f"the body must be an image file: send Content-Type image/jpeg or {BINARY}")


def check_upload(body: bytes, limits: Limits) -> None:
    """Raise 400 for an empty or damaged image file, 413 for one above the limits, 415 for another format."""
    if not body:
        raise HTTPException(400, "the body is empty: send an image file")
    if limits.image_bytes and len(body) > limits.image_bytes:
        raise HTTPException(413, f"the file has {len(body)} bytes, at most {limits.image_bytes} are accepted")
    try:
        with Image.open(BytesIO(body), formats=image_formats()) as image:
            width, height = image.size
    except UnidentifiedImageError as error:
        raise HTTPException(415, unsupported(BytesIO(body))) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise HTTPException(413, "the image has too many pixels") from error
    except Exception as error:  # Pillow's readers raise many exception types on damaged headers.
        raise HTTPException(400, f"the image cannot be read: {type(error).__name__}") from error
    try:
        check_sides(width, height)
    except ValueError as error:
        raise HTTPException(413, f"the image has {error}") from error
    if limits.pixels and width * height > limits.pixels:
        raise HTTPException(413, f"the image has {width} x {height} pixels, at most {limits.pixels} are accepted")
