"""The files of the static copy: nothing of deleted images, the size, and graphs of int8 near those
of float32."""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from bifocal.onnx.files import model_hash
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.trained_model import ONNX, TrainedModel
from bifocal.serving.service.models import SearchModel, open_search_model
from bifocal.serving.site import writer as site
from bifocal.serving.site.writer import SiteReport, quantize_weights, write_site
from tests.bifocal.serving.site.static_copy import DELETED, REMOVED, required_site_files


def test_the_copy_holds_nothing_of_deleted_images(
    copied: tuple[Path, SearchModel, SiteReport],
) -> None:
    copy, served, report = copied
    assert (report.items, report.pictures) == (254, 254)
    (data,) = (copy / "data").iterdir()
    texts = (data / "collection.json").read_text()
    for item_id in (DELETED, REMOVED):
        assert json.dumps(item_id) not in texts
        assert json.dumps(served.items.captions(served.index.ids.index(item_id))[0]) not in texts
    thumbnails = list((data / "thumbnails").iterdir())
    assert len(thumbnails) == 254
    assert max(file.stat().st_size for file in thumbnails) <= 6000
    for file in thumbnails[:5]:
        with Image.open(file) as image:
            assert not set(image.info) & {"exif", "icc_profile", "xmp"}


def test_a_full_disk_drops_no_thumbnail(
    copied: tuple[Path, SearchModel, SiteReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the second thumbnail is written, after its image was read."""
    served, read = copied[1], site.site_thumbnail

    def read_on_a_full_disk(file: Path) -> bytes:
        thumbnail = read(file)
        with suppress(FileExistsError):  # another thread was first
            (tmp_path / "site.partial" / "1.webp").symlink_to("/dev/full")
        return thumbnail

    monkeypatch.setattr(site, "site_thumbnail", read_on_a_full_disk)
    with pytest.raises(OSError, match="No space left"):
        site._write_thumbnails(served, np.arange(3), tmp_path / "site.partial")


def test_the_size_of_a_copy_of_5000_images(demo: TrainedModel, tmp_path: Path) -> None:
    required_site_files()
    onnx, shipped = demo.directory / ONNX, demo.collection
    identity = ModelIdentity("demo", None, model_hash(onnx))
    writer = CollectionWriter(
        tmp_path / "collection", Description(identity, "/", shipped.dimension, None)
    )
    vectors = np.asarray(shipped.vectors[:], np.float32)
    ids = [f"image-{number:06d}" for number in range(5000)]
    for number, item_id in enumerate(ids):
        writer.add(Item(item_id, None, "0" * 64, 0, 0), vectors[number % len(vectors)])
    writer.finish(
        {item_id: shipped.captions(number % len(vectors)) for number, item_id in enumerate(ids)},
        None,
    )
    served = open_search_model(onnx, tmp_path / "collection", None, "demo")
    served.index.bias = np.zeros(5000, np.float32)
    report = write_site(served, onnx, tmp_path / "site")
    assert (report.items, report.pictures) == (5000, 0)
    files = sum(file.stat().st_size for file in (tmp_path / "site").rglob("*") if file.is_file())
    assert report.megabytes == pytest.approx(files / 1e6)
    assert report.megabytes <= 25
    with pytest.raises(FileExistsError, match="name a new folder"):
        write_site(served, onnx, tmp_path / "site")
    served.index.remove(ids)
    with pytest.raises(ValueError, match="the collection has no images"):
        write_site(served, onnx, tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


RANDOM = np.random.default_rng(0)
FACTORS = np.logspace(-3, 2, 48, dtype=np.float32)
"""Sizes of the weights of each output: one scale for all would lose the small ones."""


def write_graph(file: Path, last: str) -> None:
    """Write an embedding table, a matrix product, an LSTM and a layer of one of two kinds."""
    nodes = [
        helper.make_node("Gather", ["table", "values"], ["words"]),
        helper.make_node("MatMul", ["words", "product"], ["hidden"]),
        helper.make_node("LSTM", ["hidden", "input", "recurrent"], ["", "state"], hidden_size=16),
        helper.make_node("Squeeze", ["state", "axes"], ["sentence"]),
        helper.make_node("Gemm", ["sentence", "layer", "bias"], ["output"], transB=1)
        if last == "Gemm"
        else helper.make_node("MatMul", ["sentence", "layer"], ["output"]),
    ]
    shapes = {
        "table": (300, 64),
        "product": (64, 32),
        "input": (1, 64, 32),
        "recurrent": (1, 64, 16),
    }
    weights = {
        name: RANDOM.normal(size=shape).astype(np.float32) / 4 for name, shape in shapes.items()
    }
    weights["layer"] = (
        RANDOM.normal(size=(480, 16)).astype(np.float32) * np.tile(FACTORS, 10)[:, None]
    )
    weights["bias"] = np.zeros(480, np.float32)
    if last == "MatMul":
        weights["layer"] = np.ascontiguousarray(weights["layer"].T)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([0]), "axes"))
    inputs = [helper.make_tensor_value_info("values", TensorProto.INT64, ["time", "batch"])]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "made", inputs, outputs, tensors)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file
    )


@pytest.mark.parametrize("last", ["Gemm", "MatMul"])
def test_each_output_is_near_that_of_float32(last: str, tmp_path: Path) -> None:
    file = tmp_path / "graph.onnx"
    write_graph(file, last)
    size, sentences = file.stat().st_size, RANDOM.integers(0, 300, (7, 40))
    (expected,) = run_graph(open_session(file), [sentences])
    quantize_weights(file, file)
    assert file.stat().st_size < 0.3 * size
    session = open_session(file)
    assert session.get_inputs()[0].shape == ["time", "batch"]
    (found,) = run_graph(session, [sentences])
    assert not np.array_equal(found, expected)
    error = np.linalg.norm(found - expected, axis=0) / np.linalg.norm(expected, axis=0)
    assert np.median(error) < 0.03
    assert error.max() < 0.3  # with one scale for all outputs, the small ones would be lost
