"""Thumbnails of a static copy."""

from io import BytesIO
from pathlib import Path

from PIL import Image

from bifocal.serving.service.live.thumbnails import small_picture

MAX_BYTES = 6_000
SIDES = (256, 192, 128, 96, 64)
"""Longest sides of a thumbnail, pixels: the first that is small enough."""
QUALITIES = (75, 50, 35)
METHOD = 2  # of the encoder: the default takes twice the time and saves 5 %


def site_thumbnail(file: Path, max_pixels: int) -> bytes:
    """Return a WebP of an image file in at most ``MAX_BYTES``, without the metadata of the file."""
    picture = small_picture(file, SIDES[0], max_pixels)
    for side in SIDES:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in QUALITIES:
            buffer = BytesIO()
            picture.save(buffer, "WEBP", quality=quality, method=METHOD)
            if buffer.tell() <= MAX_BYTES:
                return buffer.getvalue()
    raise ValueError(f"{file}: no thumbnail of at most {MAX_BYTES} bytes")  # a WebP of 64 pixels has at most 4 KB
