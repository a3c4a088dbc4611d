"""Pictures for people: an image with a heatmap on it, and a sheet of search results."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

from bifocal.report.colormap import inferno

LONGER_SIDE = 640
"""Pixels of the longer side of a picture."""
CELL, MARGIN, LINE = 260, 12, 18
"""Pixels: side of an image on a sheet, space around it, height of a line of text."""


def overlay(image: Image.Image, heatmap: NDArray[np.floating], point: tuple[float, float] | None = None) -> Image.Image:
    """Return the image with the heatmap (h, w) stretched over it and a ring around ``point``.

    ``point`` is a fraction of width and height; None is the center of the highest values, such as a cell.
    """
    if point is None:
        rows, columns = np.nonzero(heatmap == heatmap.max())
        point = ((columns.mean() + 0.5) / heatmap.shape[1], (rows.mean() + 0.5) / heatmap.shape[0])
    picture = image.convert("RGB")
    picture.thumbnail((LONGER_SIDE, LONGER_SIDE))
    low, high = float(heatmap.min()), float(heatmap.max())
    scaled = (heatmap - low) / (high - low if high > low else 1.0)
    soft = Image.fromarray((255 * scaled).astype(np.uint8)).resize(picture.size, Image.Resampling.BICUBIC)
    soft = soft.filter(ImageFilter.GaussianBlur(max(picture.size) / 40))
    values = np.asarray(soft, dtype=float) / 255
    colors = Image.fromarray((255 * inferno(0.15 + 0.85 * values)).round().astype(np.uint8))
    picture.paste(colors, mask=Image.fromarray((255 * 0.7 * values).astype(np.uint8)))
    draw = ImageDraw.Draw(picture)
    x, y, radius = point[0] * picture.width, point[1] * picture.height, max(picture.size) / 40
    for width, color in ((5, "black"), (2, "white")):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=color, width=width)
    return picture


def contact_sheet(title: str, results: Sequence[tuple[Image.Image, str]], columns: int = 5) -> Image.Image:
    """Return rows of at most ``columns`` images with a line of text below each, under a title."""
    columns = min(len(results), columns)
    rows = -(-len(results) // columns)
    width, height = columns * (CELL + MARGIN) + MARGIN, rows * (CELL + LINE + 2 * MARGIN) + 3 * LINE
    sheet = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    draw.text((MARGIN, MARGIN), title, fill="black", font=font)
    for number, (image, text) in enumerate(results):
        row, column = divmod(number, columns)
        left, top = MARGIN + column * (CELL + MARGIN), 2 * LINE + MARGIN + row * (CELL + LINE + 2 * MARGIN)
        sheet.paste(ImageOps.pad(image.convert("RGB"), (CELL, CELL), color="#eeeeee"), (left, top))
        draw.text((left, top + CELL + 4), text, fill="#333333", font=ImageFont.load_default(13))
    return sheet
