"""Collections of the demo's images with metadata, in the format of the stage."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa

from bifocal.onnx.files import model_hash
from bifocal.search.collection.format import Backbone, Description, ModelIdentity
from bifocal.search.collection.image_vectors import ImageVectors
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.trained_model import ONNX, TrainedModel
from bifocal.serving.service.models import SearchRelease

COLLECTION = Path("artifacts") / "collection"
SIDE = 128
"""Pixels along each side of an image."""


class LoadedSource:
    """A source whose model is loaded once for all tests."""

    reversible = False

    def __init__(self, served: SearchRelease) -> None:
        self.served = served

    def key(self) -> str:
        return "loaded"

    def load(self) -> SearchRelease:
        return self.served


def write_run(
    demo: TrainedModel,
    folder: Path,
    prefix: str = "test-",
    sign: int = 1,
    regions: bool = False,
    noise: float = 0.0,
) -> Path:
    """Write a run with the demo's model; return its folder.

    Args:
        prefix: of the item ids.
        regions: whether the collection has the vectors and boxes of its regions.
        noise: standard deviation of what is added to each number of a vector: a model that finds
            less.
        sign: -1 for another model with the same scores: its image and sentence vectors are negated.
    """
    shutil.copytree(demo.directory / ONNX, folder / ONNX)
    shutil.copy(demo.directory / "params.yaml", folder)
    if sign < 0:
        negate_output(folder / ONNX / "text_encoder.onnx")
    rows = range(len(demo.collection))
    ids = [f"{prefix}{number:05d}" for number in rows]
    paths = [str(demo.collection.image(row)) for row in rows]
    identity = ModelIdentity("demo", None, model_hash(folder / ONNX))
    vectors = sign * np.asarray(demo.collection.vectors[:], np.float32)
    vectors += np.float32(noise) * np.random.default_rng(0).normal(size=vectors.shape).astype(
        np.float32
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found, boxes = embed_regions(folder / ONNX, paths) if regions else ([None] * len(ids), None)
    dimension = vectors.shape[1] if regions else None
    backbone = Backbone("0" * 64, 2, 3)
    writer = CollectionWriter(
        folder / COLLECTION,
        Description(identity, "/", vectors.shape[1], dimension, backbone=backbone),
    )
    for item_id, path, vector, of_regions in zip(ids, paths, vectors, found, strict=True):
        item = Item(item_id, path.lstrip("/"), "0" * 64, SIDE, SIDE)
        writer.add(item, vector, of_regions, boxes, np.ones((2, 3)))
    captions = dict(zip(ids, map(demo.collection.captions, rows), strict=True))
    numbers = list(range(len(ids)))
    parity = ["odd" if number % 2 else "even" for number in numbers]
    metadata = {"item_id": ids, "meta.number": numbers, "meta.parity": parity}
    writer.finish(captions, pa.table(metadata))
    return folder


def embed_regions(onnx: Path, paths: Sequence[str]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the region vectors of each image, and the boxes, which are equal for every image."""
    model = ImageVectors(onnx)
    found: list[np.ndarray] = []
    for start in range(0, len(paths), 32):
        decoded = [
            model.decode(Path(path).read_bytes(), 10**6) for path in paths[start : start + 32]
        ]
        inputs = model.read_pixels([image.pixels for image in decoded])
        found += model.encode_inputs(inputs)[1] or []
    return found, model.boxes(SIDE, SIDE)


def negate_output(file: Path) -> None:
    """Negate the output of a graph."""
    model = onnx.load(file)
    (output,) = model.graph.output
    for node in model.graph.node:
        node.output[:] = ["before" if name == output.name else name for name in node.output]
    model.graph.node.append(onnx.helper.make_node("Neg", ["before"], [output.name]))
    onnx.save(model, file)


def replace_run(run: Path, new: Path) -> None:
    """Move the model and the collection of ``new`` into ``run``, one after the other, as two stages
    do."""
    for part in (ONNX, COLLECTION):
        shutil.rmtree(run / part)
        shutil.copytree(new / part, run / part)
