"""``bifocal demo``: a model and images that are files of the package, unpacked as a run folder."""

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

from bifocal.onnx.files import model_hash, read_json
from bifocal.onnx.images import open_image
from bifocal.report.pictures import contact_sheet
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import DESCRIPTION, Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.index.build import index_of_collection
from bifocal.search.query import Results
from bifocal.search.trained_model import COLLECTION, INDEX, TrainedModel, load
from bifocal.version import install
from pipelines.app.run_folder import ARTIFACTS, PARAMETERS
from pipelines.app.search import tell_found, tell_unknown

SHIPPED = Path(__file__).parent / "demo_model"
RECIPE, GRAPHS, SHEET, TABLE, VECTORS = (
    "recipe.yaml",
    "onnx",
    "images.webp",
    "collection.json",
    "vectors.npy",
)
BIAS = "bias.npy"
"""Biases of the images, see ``bifocal.hubness``; missing if the model was trained without a
bank."""
BACKBONE = "backbone.safetensors"
"""Weights of the backbone as float16, for 'bifocal train' without a network."""
SIDE, COLUMNS = 128, 16
"""Pixels of an image, and images in a row of the sheet."""
QUALITY = {"quality": 95, "subsampling": 0}
WORDS = (
    "ten shapes, eight colors, three sizes, four textures, numbers up to four, positions and "
    "nine backgrounds"
)
QUERIES = ("three red stars on a beach", "two blue rhombuses", "two green triangles in the snow")


def unpack(folder: Path) -> TrainedModel:
    """Write the demo as a run folder, unless ``folder`` has it; return its model."""
    table = read_json(SHIPPED / TABLE)
    written = folder / COLLECTION
    if (written / DESCRIPTION).is_file() and Collection.open(written).model.version == table[
        "model"
    ]:
        return load(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / SHEET).is_file():
        raise FileExistsError(
            f"{folder} is not a folder of 'bifocal demo': name a new folder with --folder"
        )
    (folder / "images").mkdir(parents=True, exist_ok=True)
    shutil.copy(SHIPPED / SHEET, folder / SHEET)
    paths = []
    for number, image in enumerate(tiles(SHIPPED / SHEET, len(table["captions"]))):
        paths.append(folder / "images" / f"{number:05d}.jpg")
        image.save(paths[-1], "JPEG", **QUALITY)
    shutil.copytree(SHIPPED / GRAPHS, folder / ARTIFACTS / "onnx", dirs_exist_ok=True)
    shutil.copy(SHIPPED / RECIPE, folder / PARAMETERS)
    _write_collection(folder, paths, table)
    return load(folder)


def _write_collection(folder: Path, paths: Sequence[Path], table: Mapping[str, Any]) -> None:
    for name in (COLLECTION, INDEX):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    vectors = np.load(SHIPPED / VECTORS)
    model = ModelIdentity("bifocal-demo", table["model"], model_hash(SHIPPED / GRAPHS))
    writer = CollectionWriter(
        folder / COLLECTION, Description(model, "../../images", vectors.shape[1], None)
    )
    captions = {}
    for number, (path, vector) in enumerate(zip(paths, vectors, strict=True)):
        digest = sha256(path.read_bytes()).hexdigest()
        item = Item(f"test-{number:05d}", path.name, digest, SIDE, SIDE)
        writer.add(item, vector)
        captions[item.item_id] = table["captions"][number]
    writer.finish(captions)
    index = index_of_collection(Collection.open(folder / COLLECTION), None)
    index.bias = np.load(SHIPPED / BIAS) if (SHIPPED / BIAS).is_file() else None
    index.write(folder / INDEX)


def tiles(sheet: Path, count: int) -> list[Image.Image]:
    """Return the first ``count`` images of a sheet, row by row."""
    picture = open_image(sheet)
    corners = ((number % COLUMNS * SIDE, number // COLUMNS * SIDE) for number in range(count))
    return [picture.crop((left, top, left + SIDE, top + SIDE)) for left, top in corners]


def answer(model: TrainedModel, query: str, count: int) -> tuple[Results, Path]:
    """Return the images that fit a query best, and the file of a picture with the query's heatmap
    in each of them."""
    hits = model.search(query, k=count)
    files = [hit.path for hit in hits if hit.path is not None]
    found = [
        (open_image(file), f"{hit.score:.2f}  {file.name}")
        for file, hit in zip(files, hits, strict=True)
    ]
    heatmaps = [(model.where(file, query).picture(), "where") for file in files]
    picture = (
        model.directory / f"{re.sub(r'[^a-z0-9]+', '-', query.lower()).strip('-') or 'query'}.png"
    )
    contact_sheet(f'bifocal demo "{query}"', found + heatmaps, columns=len(found)).save(picture)
    return hits, picture


@click.command()
@click.argument("queries", metavar="[QUERY]...", nargs=-1)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("bifocal-demo"),
    show_default=True,
    help="Run folder to write: the model, its images, and the pictures.",
)
@click.option(
    "-k", "count", type=click.IntRange(1, 5), default=5, show_default=True, help="Images to show."
)
def demo_command(queries: tuple[str, ...], folder: Path, count: int) -> None:
    """Search 256 drawn scenes by each QUERY, with a model that is part of the package.

    Writes a picture for each query: the images that fit it best, and where in them it is. Nothing
    is downloaded.
    """
    start = time.monotonic()
    model = unpack(folder)
    for query in queries or QUERIES:
        hits, picture = answer(model, query, count)
        tell_unknown(hits.unknown)
        click.secho(f'"{query}"', bold=True)
        tell_found(hits)
        for number, hit in enumerate(hits, start=1):
            click.echo(f'{number:3}.  {hit.score:.3f}  {hit.path}  "{hit.captions[0]}"')
        click.echo(f"-> {picture}")
    click.echo(
        f"{time.monotonic() - start:.1f} seconds, {len(model.collection)} images. The model "
        f"knows {WORDS}."
    )
    click.echo(f'Next: bifocal search "a green cross on sand" --run {folder}')
    click.echo(f'      bifocal where {folder}/images/00213.jpg "red heart" --run {folder}')
    click.echo(
        f"      bifocal index DIR, on your own photographs: {install('search', 'small', 'cpu')}"
    )
