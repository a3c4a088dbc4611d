"""Images inside a page: thumbnails and heatmaps as data URIs."""

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from bifocal.report.colormap import inferno

QUALITY = 82
OPACITY = 0.42


def thumbnail(image: Image.Image, side: int) -> str:
    """Return ``image`` as the data URI of a JPEG whose longer side has at most ``side`` pixels."""
    small = image.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _data_uri(small, "JPEG", quality=QUALITY, optimize=True)


def heatmap_overlay(heatmap: NDArray[np.floating]) -> str:
    """Return a heatmap (h, w) as the data URI of a PNG to lay over its image: the higher, the more opaque."""
    finite = np.isfinite(heatmap)
    low, high = (heatmap[finite].min(), heatmap[finite].max()) if finite.any() else (0.0, 0.0)
    scaled = np.where(finite, (heatmap - low) / (high - low if high > low else 1.0), 0.0)
    colored = np.dstack([inferno(0.25 + 0.7 * scaled), OPACITY * scaled**1.5])
    overlay = Image.fromarray((255 * colored).round().astype(np.uint8))
    return _data_uri(overlay.filter(ImageFilter.GaussianBlur(max(overlay.size) / 32)), "PNG", optimize=True)


def _data_uri(image: Image.Image, encoding: str, **options: object) -> str:
    buffer = io.BytesIO()
    image.save(buffer, encoding, **options)
    return f"data:image/{encoding.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
