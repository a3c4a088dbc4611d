"""Image files that clients send: checked by their header before they are decoded, and never stored."""

from starlette.exceptions import HTTPException

from bifocal.datasets.image_header import LargeImageError, UnsupportedImageError
from bifocal.serving.limits import Limits

BINARY = "application/octet-stream"


def check_content_type(content_type: str) -> None:
    """Raise 415 unless a header ``Content-Type`` names an image or binary data."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != BINARY and not kind.startswith("image/"):
        raise HTTPException(415, f"the body must be an image file: send Content-Type image/jpeg or {BINARY}")


def check_upload(body: bytes, limits: Limits) -> None:
    """Raise 400 for an empty or damaged image file, 413 for one above the limits, 415 for another format."""
    try:
        limits.image_size(body)
    except ValueError as error:
        raise HTTPException(upload_status(error), f"the image is not accepted: {error}") from error


def upload_status(error: ValueError) -> int:
    """Return the status for an image file that is not accepted."""
    return 413 if isinstance(error, LargeImageError) else 415 if isinstance(error, UnsupportedImageError) else 400
