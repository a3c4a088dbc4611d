"""The picture at the top of the README: a query, its best images, and the places of its phrases."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

import bifocal
from bifocal.datasets import open_image
from bifocal.report.pictures import contact_sheet, overlay

QUERY, PHRASES = "two spotted red hearts on water", ("red heart", "water")
SIDE, MARGIN = 260, 12


def hero(run: Path) -> Image.Image:
    """Return the sheet of results, and the phrases of the query in the best ones.

    Args:
        run: folder of ``make repro``.
    """
    model = bifocal.load(run)
    hits = model.search(QUERY, k=5)
    files = [hit.path for hit in hits if hit.path is not None]
    captioned = zip(files, hits, strict=True)
    sheet = contact_sheet(
        f'bifocal search "{QUERY}"', [(open_image(file), f"{hit.score:.2f}") for file, hit in captioned]
    )
    panels = [(f'bifocal where ... "{phrase}"', model.where(files[0], phrase).picture()) for phrase in PHRASES]
    panels += [(f'bifocal where ... "{PHRASES[0]}"', model.where(file, PHRASES[0]).picture()) for file in files[1:4]]
    picture = Image.new("RGB", (sheet.width, sheet.height + SIDE + 3 * MARGIN), "white")
    picture.paste(sheet)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(14)
    for number, (text, panel) in enumerate(panels):
        left = MARGIN + number * (SIDE + MARGIN)
        draw.text((left, sheet.height - MARGIN), text, fill="black", font=font)
        picture.paste(ImageOps.pad(panel, (SIDE, SIDE)), (left, sheet.height + MARGIN))
    return picture.quantize(128)


def sample() -> bytes:
    """Return the pixels of a sheet with a heatmap: what the code behind the picture draws now."""
    heatmap = np.add.outer(np.arange(8.0), np.arange(8.0))
    image = overlay(Image.new("RGB", (64, 48), "teal"), heatmap, (0.25, 0.75))
    return contact_sheet("sample", [(image, "0.86")]).tobytes()
