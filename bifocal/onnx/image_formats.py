"""Formats of image files that this installation decodes."""

from functools import cache
from importlib.util import find_spec
from typing import IO

from PIL import features

# Pillow reads more formats; some of them start other programs (EPS) or are not photographs.
ALWAYS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")
HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
"""First brand of the photographs that phones write, at byte 8 of the file."""


@cache
def image_formats() -> tuple[str, ...]:
    """Return Pillow's names of the formats: AVIF if Pillow has its codec, HEIF with the extra ``heic``."""
    formats = list(ALWAYS)
    if features.check("avif"):
        formats.append("AVIF")
    if find_spec("pillow_heif") is not None:
        from pillow_heif import register_heif_opener  # an extra

        register_heif_opener()
        formats.append("HEIF")
    return tuple(formats)


def unsupported(file: IO[bytes]) -> str:
    """Return why an open file has none of the formats, and what to do."""
    file.seek(4)
    start = file.read(8)
    if start.startswith(b"ftyp") and start[4:] in HEIF_BRANDS and "HEIF" not in image_formats():
        return "a HEIC photograph: install the extra heic, pip install 'bifocal-vse[heic]', or save it as JPEG"
    return f"not an image in a supported format ({', '.join(image_formats())})"
