"""The model and the images of ``bifocal demo``: files of the package, unpacked as a run folder."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from bifocal.datasets import open_image
from bifocal.report.overlay import contact_sheet
from bifocal.search.run_collection import ImageHit, RunCollection
from bifocal.trained import TrainedModel, load
from pipelines.app.run_folder import ARTIFACTS, COLLECTION, PARAMETERS

SHIPPED = Path(__file__).parent / "demo_model"
RECIPE, GRAPHS, SHEET, TABLE, VECTORS = "recipe.yaml", "onnx", "images.webp", "collection.json", "vectors.npy"
BIAS = "bias.npy"
"""Biases of the images, see ``bifocal.hubness``; missing if the model was trained without a bank."""
BACKBONE = "backbone.safetensors"
"""Weights of the backbone as float16, for 'bifocal train' without a network."""
SIDE, COLUMNS = 128, 16
"""Pixels of an image, and images in a row of the sheet."""
QUALITY = {"quality": 95, "subsampling": 0}
WORDS = "ten shapes, eight colors, three sizes, four textures, numbers up to four, positions and nine backgrounds"


def unpack(folder: Path) -> TrainedModel:
    """Write the demo as a run folder, unless ``folder`` has it; return its model.

    Raises:
        FileExistsError: the folder holds something else.
    """
    table = json.loads((SHIPPED / TABLE).read_text())
    marker = folder / COLLECTION / "collection.json"
    if marker.is_file() and RunCollection.read(folder / COLLECTION).model == table["model"]:
        return load(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / SHEET).is_file():
        raise FileExistsError(f"{folder} is no folder of 'bifocal demo': name a new folder with --folder")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    shutil.copy(SHIPPED / SHEET, folder / SHEET)
    paths = []
    for number, image in enumerate(tiles(SHIPPED / SHEET, len(table["captions"]))):
        paths.append((folder / "images" / f"{number:05d}.jpg").resolve())
        image.save(paths[-1], "JPEG", **QUALITY)
    shutil.copytree(SHIPPED / GRAPHS, folder / ARTIFACTS / "onnx", dirs_exist_ok=True)
    shutil.copy(SHIPPED / RECIPE, folder / PARAMETERS)
    names = [f"test-{number:05d}" for number in range(len(paths))]
    images = pd.DataFrame({"image_id": names, "path": list(map(str, paths)), "captions": table["captions"]})
    bias = np.load(SHIPPED / BIAS) if (SHIPPED / BIAS).is_file() else None
    RunCollection(np.load(SHIPPED / VECTORS), images, table["model"], bias).write(folder / COLLECTION)
    return load(folder)


def tiles(sheet: Path, count: int) -> list[Image.Image]:
    """Return the first ``count`` images of a sheet, row by row."""
    with Image.open(sheet) as opened:
        picture = opened.convert("RGB")
    corners = ((number % COLUMNS * SIDE, number // COLUMNS * SIDE) for number in range(count))
    return [picture.crop((left, top, left + SIDE, top + SIDE)) for left, top in corners]


def answer(model: TrainedModel, query: str, count: int) -> tuple[list[ImageHit], Path]:
    """Return the images that fit a query best, and the file of a picture with the query's heatmap in each of them."""
    hits = model.search(query, k=count)
    files = [hit.path for hit in hits if hit.path is not None]
    found = [(open_image(file), f"{hit.score:.2f}  {file.name}") for file, hit in zip(files, hits, strict=True)]
    heatmaps = [(model.where(file, query).picture(), "where") for file in files]
    picture = model.directory / f"{re.sub(r'[^a-z0-9]+', '-', query.lower()).strip('-') or 'query'}.png"
    contact_sheet(f'bifocal demo "{query}"', found + heatmaps, columns=len(found)).save(picture)
    return hits, picture
