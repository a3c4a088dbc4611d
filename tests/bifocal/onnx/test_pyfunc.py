"""A served model answers the inputs it accepts, and refuses all others."""

import base64
import json
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto, helper
from PIL import Image

from bifocal.onnx import pyfunc
from bifocal.onnx.encoders import Embedder, PairScorer
from bifocal.onnx.limits import Limits
from bifocal.onnx.pixels import read_pixels
from bifocal.onnx.pyfunc import EmbeddingPredictor, PairPredictor, open_model
from bifocal.text import Vocabulary
from tests.bifocal.graphs import save_graph, tensor

SIZE = 3


def save_mean(file: Path, inputs: list[onnx.ValueInfoProto], *axes: int) -> None:
    """Write the mean of the first input over ``axes``."""
    nodes = [
        helper.make_node("Cast", [inputs[0].name], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node(
            "ReduceMean", ["numbers", "axes"], ["embeddings"], keepdims=int(len(axes) == 1)
        ),
    ]
    save_graph(file, nodes, inputs, [tensor("embeddings", 2)], {"axes": axes})


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A model whose image encoder reads pixels: an image's embedding is the mean of each color."""
    ids = [tensor(name, kind=TensorProto.INT64) for name in ("values", "lengths")]
    save_mean(tmp_path / "text_encoder.onnx", ids, 1)
    pixels = tensor("pixels", [None, 3, None, None])
    save_mean(tmp_path / "image_encoder.onnx", [pixels], 2, 3)
    Vocabulary(["dog"]).save(tmp_path / Vocabulary.FILE)
    return tmp_path


def encoded(image: Image.Image) -> str:
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_an_encoder_of_pixels_takes_images_and_no_features(exported: Path) -> None:
    (exported / "preprocessing.json").write_text(
        json.dumps({"size": SIZE, "interpolation": "bicubic"})
    )
    model = EmbeddingPredictor(Embedder(exported))
    assert model.columns == ("text", "image")
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8))
    expected = np.asarray(
        image.resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=np.float64
    ).mean(axis=(0, 1))
    (found,) = model.predict(pd.DataFrame({"image": [encoded(image)]}))["embedding"]
    assert found == pytest.approx(expected.tolist(), rel=1e-5)
    file = base64.b64decode(encoded(image))
    for binary in (file, bytearray(file)):
        (same,) = model.predict(pd.DataFrame({"image": [binary]}))["embedding"]
        assert same.tolist() == found.tolist()
    with pytest.raises(
        ValueError, match="the image of row 0 cannot be read: not an image in a supported format"
    ):
        model.predict(pd.DataFrame({"image": [b"no image"]}))
    with pytest.raises(ValueError, match="row 0 has features; this model accepts text, image"):
        model.predict(pd.DataFrame({"features": [[[1.0]]]}))


def test_without_a_graph_for_them_images_are_not_taken(exported: Path) -> None:
    model = EmbeddingPredictor(Embedder(exported))
    assert model.columns == ("text",)
    with pytest.raises(ValueError, match="row 1 has image; this model accepts text"):
        model.predict(pd.DataFrame({"text": ["a dog", None], "image": [None, "x"]}))


def test_string_that_is_no_image_is_refused() -> None:
    for text in ("no base64!", base64.b64encode(b"no image").decode()):
        with pytest.raises(
            ValueError, match=r"an image cannot be read: .*; expected the base64 of an image file"
        ):
            read_pixels(text, 64, "bicubic")
    assert (read_pixels(encoded(Image.new("L", (64, 64), 7)), 64, "bicubic") == 7).all()


WORDS = [f"w{number}" for number in range(200)]
LEVELS, DIM = 2, 1


CONSTANTS: dict[str, ArrayLike] = {
    "one": [1],
    "two": [2],
    "last": [2, 3],
    "cells_shape": [0, LEVELS, -1, DIM],
    "row": [1, -1],
    "thousand": 1000.0,
}


@pytest.fixture
def exported_pairs(tmp_path: Path) -> Path:
    """A model with one dimension: score = 1000 times the first level's largest cell + the sum of
    the word ids."""
    node = helper.make_node
    ids = [tensor("values", 2, TensorProto.INT64), tensor("lengths", 1, TensorProto.INT64)]
    text = [
        node("Cast", ["values"], ["numbers"], to=TensorProto.FLOAT),
        node("ReduceSum", ["numbers", "one"], ["sentences"], keepdims=1),
        node("Unsqueeze", ["numbers", "two"], ["words"]),
        node("Shape", ["lengths"], ["unused"]),
    ]
    sentences = [tensor("sentences"), tensor("words")]
    save_graph(tmp_path / "text_encoder.onnx", text, ids, sentences, CONSTANTS)
    image = [
        node("Reshape", ["features", "cells_shape"], ["cells"]),
        node("Shape", ["mask"], ["unused"]),
    ]
    regions = [tensor("features", 3), tensor("mask", 2, TensorProto.BOOL)]
    cells = [tensor("cells", [None, LEVELS, None, DIM])]
    save_graph(tmp_path / "image_encoder.onnx", image, regions, cells, CONSTANTS)
    scores = [
        node("Split", ["cells"], ["level", "other"], axis=1, num_outputs=LEVELS),
        node("Squeeze", ["level", "one"], ["squeezed"]),
        node("ReduceMax", ["squeezed", "one"], ["maxima"], keepdims=0),
        node("Mul", ["maxima", "thousand"], ["scaled"]),
        node("ReduceSum", ["words", "one"], ["sums"], keepdims=0),
        node("Reshape", ["sums", "row"], ["of_sentences"]),
        node("Add", ["scaled", "of_sentences"], ["scores"]),
        node("Shape", ["sentences"], ["unused"]),
    ]
    encodings = [tensor("cells", 4), tensor("sentences", 2), tensor("words", 3)]
    save_graph(tmp_path / "scores.onnx", scores, encodings, [tensor("scores")], CONSTANTS)
    backbone = [
        node("Cast", ["pixels"], ["numbers"], to=TensorProto.FLOAT),
        node("ReduceMean", ["numbers", "last"], ["means"], keepdims=0),
        node("Split", ["means"], ["red", "green", "blue"], axis=1, num_outputs=3),
        node("Concat", ["red", "green"], ["both"], axis=1),
        node("Unsqueeze", ["both", "two"], ["features"]),
    ]
    pixels = [tensor("pixels", 4, TensorProto.UINT8)]
    save_graph(tmp_path / "backbone.onnx", backbone, pixels, [tensor("features")], CONSTANTS)
    (tmp_path / "preprocessing.json").write_text(
        json.dumps({"size": 2, "interpolation": "bicubic"})
    )
    Vocabulary(WORDS).save(tmp_path / Vocabulary.FILE)
    return tmp_path


def encoded_color(red: int) -> str:
    buffer = BytesIO()
    Image.new("RGB", (3, 3), (red, 7, 7)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_each_row_has_the_score_of_its_pair(
    exported_pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyfunc, "IMAGES", 3)
    monkeypatch.setattr(pyfunc, "SENTENCES", 4)
    model = open_model(exported_pairs)
    assert isinstance(model, PairPredictor)
    assert model.columns == ("text", "image", "features")
    generator = np.random.default_rng(4)
    rows, expected = [], []
    for _ in range(60):
        words = generator.integers(0, 6, generator.integers(1, 4)).tolist()
        value = int(generator.integers(0, 5))
        row = {
            "text": " ".join(WORDS[word] for word in words),
            "image": encoded_color(value),
            "features": None,
        }
        if generator.random() < 0.5:
            cells = int(generator.integers(1, 4))
            first = [[float(value - number)] for number in range(cells)]
            row |= {"image": None, "features": [*first, *([[99.0]] * cells)]}
        rows.append(row)
        expected.append(1000 * value + sum(word + 2 for word in words))
    frame = pd.DataFrame(rows, index=[f"row {number}" for number in range(60)])
    scores = model.predict(frame)
    assert scores.columns.tolist() == ["score"]
    assert scores.index.equals(frame.index)
    assert scores["score"].tolist() == expected


def test_the_example_is_accepted(exported_pairs: Path) -> None:
    model = PairPredictor(PairScorer(exported_pairs))
    assert model.example().columns.tolist() == ["text", "image"]
    assert len(model.predict(model.example())) == 2
    (exported_pairs / "preprocessing.json").unlink()
    model = PairPredictor(PairScorer(exported_pairs))
    assert model.example().columns.tolist() == ["text", "features"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"text": "w1"},
            "row 0 has text, expected text and image or features: this model scores pairs",
        ),
        ({"image": "x"}, "row 0 has image, expected text and image or features"),
        (
            {"text": "w1", "image": "x", "features": [[1.0]]},
            "row 0 has text and image and features, expected text and",
        ),
        ({"text": "w1", "image": "x"}, "the image of row 0 cannot be read"),
        (
            {"text": "w1", "features": [[1.0]] * 3},
            "features of 3 cells, expected equally many cells of 2 levels",
        ),
        (
            {"txt": "w1"},
            "no row has text with image or text with features; columns of other names are ignored",
        ),
    ],
)
def test_other_rows_are_refused(exported_pairs: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_model(exported_pairs).predict(pd.DataFrame([row]))


def test_equal_images_count_once_for_the_limit_of_pixels(exported_pairs: Path) -> None:
    model = PairPredictor(PairScorer(exported_pairs), Limits(total_pixels=9))
    frame = pd.DataFrame({"text": ["w1", "w2"], "image": [encoded_color(1), encoded_color(1)]})
    assert len(model.predict(frame)) == 2
    with pytest.raises(ValueError, match="the images up to row 1 have 18 pixels"):
        model.predict(frame.assign(image=[encoded_color(1), encoded_color(2)]))
