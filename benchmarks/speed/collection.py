"""What does an update cost, relative to embedding all images again?

    OMP_NUM_THREADS=1 python -m benchmarks run speed.collection [--images 100000] [--added 1000]

Scenes of 64 x 64 pixels in a folder, by the demo's model: 500 drawn ones, and copies of them that
are shifted sideways. An update compares the states of all files, embeds the new ones, links the
previous shards, and writes an exact index. Times are CPU times, so other processes hardly change
them.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.common import Report, cpu_seconds
from bifocal.datasets.corpora import Scenes
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.embedding import CollectionEmbedder
from bifocal.search.collection.sources import files_source
from bifocal.search.index.build import index_of_collection

ONNX = Path(__file__).parents[2] / "pipelines" / "app" / "demo_model" / "onnx"
SIZE, DRAWN = 64, 500


def draw(folder: Path, count: int) -> list[Path]:
    """Write different images, and return their files."""
    corpus, files = Scenes(train=DRAWN, val=0, test=0, size=SIZE).read(folder / "drawn"), []
    pixels = [np.asarray(Image.open(folder / "drawn" / str(image.path))) for image in corpus.images]
    (folder / "photos").mkdir()
    for number in range(count):
        files.append(folder / "photos" / f"{number:06d}.png")
        Image.fromarray(np.roll(pixels[number % DRAWN], number // DRAWN, axis=1)).save(files[-1])
    return files


def embed(photos: Path, target: Path, previous: Path | None = None) -> None:
    """Write the collection of a folder, without regions."""
    source = files_source(photos, target)
    opened = None if previous is None else Collection.open(previous)
    CollectionEmbedder(ONNX, "demo", source, opened, max_pixels=SIZE * SIZE, regions=False).write(
        target
    )


def update(photos: Path, previous: Path, target: Path) -> None:
    """Write the collection of a folder with the previous vectors, and its index."""
    embed(photos, target / "collection", previous)
    (target / "index").mkdir()
    index_of_collection(Collection.open(target / "collection"), None).write(target / "index")


def main() -> None:
    """Report the time of an update as a share of the time that embeds all images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--added", type=int, default=1000)
    options = parser.parse_args()
    count, added, report = options.images, options.added, Report("speed.collection")
    with tempfile.TemporaryDirectory() as folder:
        root, photos = Path(folder), Path(folder) / "photos"
        images = draw(root, count + added)[count:]
        (root / "new").mkdir()
        held = [(image, image.rename(root / "new" / image.name)) for image in images]
        everything = cpu_seconds(partial(embed, photos, root / "collection"))
        for image, moved in held:
            moved.rename(image)
        seconds = cpu_seconds(partial(update, photos, root / "collection", root / "updated"))
        report.add(
            f"{count:,} scenes: update with {added:,} new ones, relative to embedding all",
            seconds / (everything * (count + added) / count),
            at_most=0.02,
            reference=f"{seconds:.2f} s; all: {everything:.0f} s; load {os.getloadavg()[0]:.0f}",
        )
        report.add(f"{count:,} scenes: embedding all", 1000 * everything / count, "ms / image")
    report.write()


if __name__ == "__main__":
    main()
