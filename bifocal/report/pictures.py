"""Pictures inside a page: thumbnails and heatmaps as data URIs."""

import base64
import io

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

QUALITY = 82
OPACITY = 0.42


def thumbnail(image: Image.Image, side: int) -> str:
    """A JPEG whose longer side has at most ``side`` pixels, as a data URI."""
    small = image.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _uri(small, "JPEG", quality=QUALITY, optimize=True)


def heatmap_overlay(heatmap: NDArray[np.floating], colours: str = "inferno") -> str:
    """A transparent PNG to lay over the image: false colours, the more opaque the hotter.

    Args:
        colours: name of a matplotlib colour map.

    Shape:
        heatmap (h, w); -inf where nothing is known.
    """
    finite = np.isfinite(heatmap)
    low, high = (heatmap[finite].min(), heatmap[finite].max()) if finite.any() else (0.0, 0.0)
    scaled = np.where(finite, (heatmap - low) / (high - low if high > low else 1.0), 0.0)
    coloured = matplotlib.colormaps[colours](0.25 + 0.7 * scaled)
    coloured[..., 3] = OPACITY * scaled**1.5
    picture = Image.fromarray((255 * coloured).round().astype(np.uint8))
    return _uri(picture.filter(ImageFilter.GaussianBlur(max(picture.size) / 32)), "PNG", optimize=True)


def _uri(image: Image.Image, kind: str, **options: object) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
