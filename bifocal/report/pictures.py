"""Pictures: thumbnails of a dataset as data URIs, images with heatmaps, and sheets of images with
texts."""

import base64
import io
from collections.abc import Sequence
from functools import lru_cache
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

from bifocal.onnx.images import open_image

if TYPE_CHECKING:
    from bifocal.datasets import Dataset  # which imports pandas, half a second

QUALITY = 82
OPACITY = 0.42
LONGER_SIDE = 640
"""Pixels of the longer side of a picture."""
THUMBNAIL_SIDE = 240
CELL, MARGIN, LINE = 260, 12, 18
"""Pixels: side of an image on a sheet, space around it, height of a line of text."""
TEXT = 40
"""Letters of the line below an image."""
_POINTS = (
    "0000040403120b0724150b37210c4a2f0a5b3d09654a0c6b57106e64156e71196e7d1e6d8a226a972766a32c"
    "61b0315bbc3754c63d4dd04545da4e3ce35933eb6429f1711ff67e14f98c0afb9b06fcaa0ffbba1ff9c932f5"
    "d949f2e865f3f586fcffa4"
)
"""33 equally spaced colors of matplotlib's inferno, by Nathaniel J. Smith and Stefan van der Walt
(CC0), as hex RGB."""


def inferno(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the colors (..., 3) in [0, 1] of values (...) in [0, 1]: dark for 0, bright for 1."""
    colors = np.frombuffer(bytes.fromhex(_POINTS), dtype=np.uint8).reshape(-1, 3) / 255
    positions = np.linspace(0, 1, len(colors))
    return np.stack([np.interp(values, positions, channel) for channel in colors.T], axis=-1)


def thumbnail(image: Image.Image, side: int) -> str:
    """Return ``image`` as the data URI of a JPEG whose longer side has at most ``side`` pixels."""
    small = open_image(image)
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _data_uri(small, "JPEG", quality=QUALITY, optimize=True)


def heatmap_overlay(heatmap: NDArray[np.floating]) -> str:
    """Return a heatmap (h, w) as the data URI of a PNG to lay over its image: the higher, the more
    opaque."""
    return _data_uri(_layer(heatmap), "PNG", optimize=True)


def with_heatmap(
    image: Image.Image,
    heatmap: NDArray[np.floating],
    boxes: NDArray[np.floating],
    point: NDArray[np.floating] | None = None,
) -> Image.Image:
    """Return an image under its heatmap, -inf without a score, with boxes (n, 4) and a point in
    percent."""
    picture = open_image(image).convert("RGBA")
    picture.alpha_composite(_layer(heatmap).resize(picture.size))
    scale, draw = np.array(picture.size) / 100, ImageDraw.Draw(picture)
    for box in boxes * np.tile(scale, 2):
        draw.rectangle(box.tolist(), outline="white", width=2)
    if point is not None:
        _draw_ring(draw, point / 100, picture.size)
    return picture.convert("RGB")


def _layer(heatmap: NDArray[np.floating]) -> Image.Image:
    finite = np.isfinite(heatmap)
    low, high = (heatmap[finite].min(), heatmap[finite].max()) if finite.any() else (0.0, 0.0)
    scaled = np.where(finite, (heatmap - low) / (high - low if high > low else 1.0), 0.0)
    colored = np.dstack([inferno(0.25 + 0.7 * scaled), OPACITY * scaled**1.5])
    overlay = Image.fromarray((255 * colored).round().astype(np.uint8))
    return overlay.filter(ImageFilter.GaussianBlur(max(overlay.size) / 32))


def overlay(
    image: Image.Image, heatmap: NDArray[np.floating], point: tuple[float, float] | None = None
) -> Image.Image:
    """Return the image with a stretched heatmap (h, w) and a ring around ``point``, by default its
    highest values."""
    from bifocal.onnx.heatmaps import peak, scaled  # imports onnxruntime, which a page does without

    picture = open_image(image)
    picture.thumbnail((LONGER_SIDE, LONGER_SIDE))
    soft = Image.fromarray((255 * scaled(heatmap)).astype(np.uint8)).resize(
        picture.size, Image.Resampling.BICUBIC
    )
    soft = soft.filter(ImageFilter.GaussianBlur(max(picture.size) / 40))
    values = np.asarray(soft, dtype=float) / 255
    colors = Image.fromarray((255 * inferno(0.15 + 0.85 * values)).round().astype(np.uint8))
    picture.paste(colors, mask=Image.fromarray((255 * 0.7 * values).astype(np.uint8)))
    _draw_ring(ImageDraw.Draw(picture), point or peak(heatmap), picture.size)
    return picture


def _draw_ring(
    draw: ImageDraw.ImageDraw, point: Sequence[float] | NDArray[np.floating], size: tuple[int, int]
) -> None:
    x, y, radius = point[0] * size[0], point[1] * size[1], max(size) / 40
    for width, color in ((5, "black"), (2, "white")):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=color, width=width)


def contact_sheet(
    title: str, results: Sequence[tuple[Image.Image, str]], columns: int = 5
) -> Image.Image:
    """Return rows of at most ``columns`` images with a line of text below each, under a title."""
    columns = min(len(results), columns)
    rows = -(-len(results) // columns)
    width, height = columns * (CELL + MARGIN) + MARGIN, rows * (CELL + LINE + 2 * MARGIN) + 3 * LINE
    sheet = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    draw.text((MARGIN, MARGIN), title, fill="black", font=font)
    for number, (image, text) in enumerate(results):
        row, column = divmod(number, columns)
        left, top = (
            MARGIN + column * (CELL + MARGIN),
            2 * LINE + MARGIN + row * (CELL + LINE + 2 * MARGIN),
        )
        sheet.paste(ImageOps.pad(open_image(image), (CELL, CELL), color="#eeeeee"), (left, top))
        draw.text(
            (left, top + CELL + 4),
            shorten(text, TEXT),
            fill="#333333",
            font=ImageFont.load_default(13),
        )
    return sheet


class Thumbnails:
    """Images of a dataset as data URIs, each read once per size; images without a file become gray
    squares."""

    def __init__(self, dataset: "Dataset") -> None:
        self.dataset = dataset
        self.uri = lru_cache(maxsize=None)(
            lambda name, side=THUMBNAIL_SIDE: thumbnail(self.open(name, side), side)
        )

    def open(self, image_id: str, side: int) -> Image.Image:
        """Return the image, decoded at a lower resolution if each side keeps at least ``side``
        pixels."""
        try:
            self.dataset.image_path(image_id)
        except ValueError:
            return Image.new("RGB", (THUMBNAIL_SIDE, THUMBNAIL_SIDE), (128, 128, 128))
        return self.dataset.open_image(image_id, side)


def _data_uri(image: Image.Image, encoding: str, **options: object) -> str:
    buffer = io.BytesIO()
    image.save(buffer, encoding, **options)
    return f"data:image/{encoding.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
