"""What a served model says that it takes is what it answers."""

import base64
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper
from PIL import Image

from bifocal.text import Vocabulary
from components.register_model.serving import Embedder
from runtime import artifacts
from runtime.mlflow.registry import COLUMNS

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
    """A model whose image encoder reads pixels: an image's embedding is the mean of each colour."""
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
    artifacts.write_json(exported / "preprocessing.json", {"size": SIZE, "interpolation": "bicubic"})
    embedder = Embedder(exported)
    assert embedder.columns == ("text", "image")
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8))
    expected = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=np.float64).mean(axis=(0, 1))
    (found,) = embedder.predict(pd.DataFrame({"image": [encoded(image)]}))["embedding"]
    assert found == pytest.approx(expected.tolist(), rel=1e-5)
    with pytest.raises(ValueError, match="row 0 has features; this model takes text, image"):
        embedder.predict(pd.DataFrame({"features": [[[1.0]]]}))


def test_without_a_graph_for_them_images_are_not_taken(exported: Path) -> None:
    embedder = Embedder(exported)
    assert embedder.columns == ("text",)
    with pytest.raises(ValueError, match="row 1 has image; this model takes text"):
        embedder.predict(pd.DataFrame({"text": ["a dog", None], "image": [None, "x"]}))


def test_every_column_has_its_type() -> None:
    from components.register_model import serving

    assert tuple(COLUMNS) == serving.COLUMNS
