"""A served model answers the inputs it accepts, and refuses all others."""

import base64
import json
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper
from PIL import Image

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.pixels import read_pixels
from bifocal.onnx.pyfunc import EmbedderModel
from bifocal.text import Vocabulary

SIZE = 3


def save(file: Path, inputs: list[onnx.ValueInfoProto], *axes: int) -> None:
    """The mean of the first input over ``axes``."""
    numbers = helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes)
    nodes = [
        helper.make_node("Cast", [inputs[0].name], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["embeddings"], keepdims=int(len(axes) == 1)),
    ]
    output = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, [None, None])
    made = helper.make_graph(nodes, "mean", inputs, [output], [numbers])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A model whose image encoder reads pixels: an image's embedding is the mean of each color."""
    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("values", "lengths")]
    save(tmp_path / "text_encoder.onnx", ids, 1)
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [None, 3, None, None])
    save(tmp_path / "image_encoder.onnx", [pixels], 2, 3)
    Vocabulary(["dog"]).save(tmp_path / Vocabulary.FILE)
    return tmp_path


def encoded(image: Image.Image) -> str:
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_an_encoder_of_pixels_takes_images_and_no_features(exported: Path) -> None:
    (exported / "preprocessing.json").write_text(json.dumps({"size": SIZE, "interpolation": "bicubic"}))
    model = EmbedderModel(Embedder(exported))
    assert model.columns == ("text", "image")
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8))
    expected = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=np.float64).mean(axis=(0, 1))
    (found,) = model.predict(pd.DataFrame({"image": [encoded(image)]}))["embedding"]
    assert found == pytest.approx(expected.tolist(), rel=1e-5)
    file = base64.b64decode(encoded(image))
    for binary in (file, bytearray(file)):
        (same,) = model.predict(pd.DataFrame({"image": [binary]}))["embedding"]
        assert same.tolist() == found.tolist()
    with pytest.raises(ValueError, match="the image of row 0 cannot be read: not an image in a supported format"):
        model.predict(pd.DataFrame({"image": [b"no image"]}))
    with pytest.raises(ValueError, match="row 0 has features; this model accepts text, image"):
        model.predict(pd.DataFrame({"features": [[[1.0]]]}))


def test_without_a_graph_for_them_images_are_not_taken(exported: Path) -> None:
    model = EmbedderModel(Embedder(exported))
    assert model.columns == ("text",)
    with pytest.raises(ValueError, match="row 1 has image; this model accepts text"):
        model.predict(pd.DataFrame({"text": ["a dog", None], "image": [None, "x"]}))


def test_string_that_is_no_image_is_refused() -> None:
    for text in ("no base64!", base64.b64encode(b"no image").decode()):
        with pytest.raises(ValueError, match=r"an image cannot be read: .*; expected the base64 of an image file"):
            read_pixels(text, 64, "bicubic")
    assert (read_pixels(encoded(Image.new("L", (64, 64), 7)), 64, "bicubic") == 7).all()
