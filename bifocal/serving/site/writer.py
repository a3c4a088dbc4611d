"""Writes a static copy: the page, the text encoder with weights of int8, thumbnails, and the
items."""

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from bifocal.durable import new_folder
from bifocal.onnx.int8 import FLOAT, store_as_int8
from bifocal.onnx.pointing import PointingHead
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.onnx.towers import graph_file
from bifocal.progress import track
from bifocal.serving.service.models import SearchModel
from bifocal.serving.site.contents import (
    site_thumbnail,
    write_collection,
    write_json,
    write_vectors,
)
from bifocal.serving.site.npm import vendored_files
from bifocal.serving.site.places import write_places
from bifocal.serving.site.sentences import describe_readers

GRAPH, READERS, THUMBNAILS, PLACES = "text_encoder.onnx", "readers.json", "thumbnails", "places"
SENTENCES = 50
"""Captions that compare the graph of int8 with the graph of float32."""
MIN_COSINE = 0.99
RECURRENT = ("GRU", "LSTM", "RNN")
SMALL = 1024
"""Numbers of a tensor below which int8 saves too little."""


@dataclass(frozen=True)
class SiteReport:
    """What a static copy holds.

    Attributes:
        megabytes: of all files but the files of single images.
        cosine: lowest of a caption's vectors by the graph of int8 and by the model.
        place_bytes: size of an image's file of places; 0 if the copy shows no places.
    """

    items: int
    pictures: int
    megabytes: float
    cosine: float
    place_bytes: int


def write_site(
    model: SearchModel, graphs: Path, destination: Path, places: bool = True
) -> SiteReport:
    """Write the search page of a model as a folder for any web server.

    Args:
        graphs: folder of the exported model.
        places: whether the copy shows where phrases are, if the model has a pointing head.
    """
    readers, vendored = describe_readers(graphs), vendored_files()
    rows = model.newest()
    if not len(rows):
        raise ValueError("the collection has no images: embed a folder of images first")
    with new_folder(destination) as partial:
        _write_page(partial)
        shutil.copytree(vendored, partial / "vendor")
        data = partial / "data" / "new"
        data.mkdir(parents=True)
        write_json(data / READERS, readers)
        cosine = _write_graph(model, graphs, rows, data / GRAPH)
        write_vectors(model, rows, data)
        pictures = _write_thumbnails(model, rows, data / THUMBNAILS)
        head = model.pointer if places and isinstance(model.pointer, PointingHead) else None
        place_bytes = 0
        if head is not None and any(pictures):
            files = [
                model.items.file(row) if known else None
                for row, known in zip(rows.tolist(), pictures, strict=True)
            ]
            place_bytes = write_places(head, files, data / PLACES)
        write_collection(model, rows, pictures, data, place_bytes > 0)
        digest = _digest(data)
        data.rename(data.with_name(digest))
        write_json(partial / "site.json", {"data": f"data/{digest}"})
        (partial / ".nojekyll").touch()  # GitHub Pages serves the files as they are
        shared = [file for file in partial.rglob("*") if file.is_file() and not file.stem.isdigit()]
        size = sum(file.stat().st_size for file in shared)
    return SiteReport(len(rows), sum(pictures), size / 1e6, cosine, place_bytes)


def _write_page(folder: Path) -> None:
    """Write the service's page, where files of ``page/static`` replace its files with the same
    names."""
    (folder / "page").mkdir()
    page = files("bifocal.serving") / "page"
    own = {file.name: file for file in (page / "static").iterdir()}
    for file in (file for file in page.iterdir() if file.is_file()):
        target = folder / file.name if file.name == "index.html" else folder / "page" / file.name
        target.write_bytes(file.read_bytes())
    for name, file in own.items():
        target, content = folder / "page" / name, file.read_text("utf-8")
        if name.endswith(".json"):  # texts that differ from the service's
            texts = json.loads(target.read_text("utf-8")) | json.loads(content)
            content = json.dumps(texts, ensure_ascii=False, indent=2) + "\n"
        target.write_text(content, "utf-8")


def _write_graph(model: SearchModel, graphs: Path, rows: NDArray[np.int64], file: Path) -> float:
    """Write the text encoder with weights of int8; return its lowest cosine with the model."""
    quantize_weights(graph_file(graphs, GRAPH), file)
    captions = [
        text for row in rows[: 10 * SENTENCES].tolist() for text in model.items.captions(row)[:1]
    ]
    sentences = captions[:SENTENCES]
    if not sentences:
        return 1.0
    (vectors,) = run_graph(open_session(file), model.embedder.sentences.read(sentences))[:1]
    expected = model.embedder.embed_sentences(sentences)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = float(((vectors * expected).sum(axis=1) / norms).min())
    if cosine < MIN_COSINE:
        raise ValueError(
            f"the text encoder of int8 differs from the model: cosine {cosine:.4f}, at least "
            f"{MIN_COSINE}"
        )
    return cosine


def _write_thumbnails(model: SearchModel, rows: NDArray[np.int64], folder: Path) -> list[bool]:
    """Write a thumbnail per item, named by its number; return whether each image could be read."""
    folder.mkdir()

    def write(number: int) -> bool:
        file = model.items.file(int(rows[number]))
        if file is None:
            return False
        try:
            thumbnail = site_thumbnail(file)
        except (OSError, ValueError):
            return False
        (folder / f"{number}.webp").write_bytes(
            thumbnail
        )  # a full disk is an error of the copy, not of the image
        return True

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        return list(
            track(executor.map(write, range(len(rows))), "write thumbnails", total=len(rows))
        )


def _digest(folder: Path) -> str:
    """Return a hash of the files of a folder: browsers keep files by their addresses, so new data
    has a new one."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(
            file.relative_to(folder).as_posix().encode()
            + b"\0"
            + hashlib.sha256(file.read_bytes()).digest()
        )
    return digest.hexdigest()[:16]


def quantize_weights(source: Path, file: Path) -> None:
    """Write a graph with tables and matrices as int8, a scale per row, output or gate; it computes
    in float32."""
    model = onnx.load(source)
    store_as_int8(model.graph, _scaled_axes(model.graph))
    onnx.save(model, file)


def _scaled_axes(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the large weights, and the axis of each whose indices have a scale of their own."""
    axes: dict[str, int] = {}
    for node in graph.node:
        rows = node.op_type in ("Gather", "Conv") or any(
            item.name == "transB" and item.i for item in node.attribute
        )
        for name in node.input:
            axes[name] = 0 if rows else 1 if node.op_type in RECURRENT else axes.get(name, -1)
    return {
        tensor.name: axes.get(tensor.name, -1) % len(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == FLOAT and len(tensor.dims) > 1 and np.prod(tensor.dims) >= SMALL
    }
