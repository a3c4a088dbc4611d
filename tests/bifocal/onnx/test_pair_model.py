"""A served model that scores pairs: every row gets the score of its own sentence and image."""

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

from bifocal.onnx import pair_model
from bifocal.onnx.encoders import PairScorer
from bifocal.onnx.limits import Limits
from bifocal.onnx.pair_model import PairScorerModel
from bifocal.onnx.pyfunc import open_model
from bifocal.text import Vocabulary

WORDS = [f"w{number}" for number in range(200)]
LEVELS, DIM = 2, 1


def save(file: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, int]], outputs: list[str]) -> None:
    values = [helper.make_tensor_value_info(name, kind, [None] * rank) for name, (kind, rank) in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    if outputs == ["cells"]:
        results = [helper.make_tensor_value_info("cells", TensorProto.FLOAT, [None, LEVELS, None, DIM])]
    constants = [
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        helper.make_tensor("two", TensorProto.INT64, [1], [2]),
        helper.make_tensor("last", TensorProto.INT64, [2], [2, 3]),
        helper.make_tensor("cells_shape", TensorProto.INT64, [4], [0, LEVELS, -1, DIM]),
        helper.make_tensor("row", TensorProto.INT64, [2], [1, -1]),
        helper.make_tensor("thousand", TensorProto.FLOAT, [], [1000.0]),
    ]
    made = helper.make_graph(nodes, "made", values, results, constants)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A model with one dimension: score = 1000 times the first level's largest cell + the sum of the word ids."""
    node = helper.make_node
    ids, lengths = {"values": (TensorProto.INT64, 2)}, {"lengths": (TensorProto.INT64, 1)}
    text = [
        node("Cast", ["values"], ["numbers"], to=TensorProto.FLOAT),
        node("ReduceSum", ["numbers", "one"], ["sentences"], keepdims=1),
        node("Unsqueeze", ["numbers", "two"], ["words"]),
        node("Shape", ["lengths"], ["unused"]),
    ]
    save(tmp_path / "text_encoder.onnx", text, ids | lengths, ["sentences", "words"])
    image = [node("Reshape", ["features", "cells_shape"], ["cells"]), node("Shape", ["mask"], ["unused"])]
    regions = {"features": (TensorProto.FLOAT, 3), "mask": (TensorProto.BOOL, 2)}
    save(tmp_path / "image_encoder.onnx", image, regions, ["cells"])
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
    encodings = {"cells": (TensorProto.FLOAT, 4), "sentences": (TensorProto.FLOAT, 2), "words": (TensorProto.FLOAT, 3)}
    save(tmp_path / "scores.onnx", scores, encodings, ["scores"])
    backbone = [
        node("Cast", ["pixels"], ["numbers"], to=TensorProto.FLOAT),
        node("ReduceMean", ["numbers", "last"], ["means"], keepdims=0),
        node("Split", ["means"], ["red", "green", "blue"], axis=1, num_outputs=3),
        node("Concat", ["red", "green"], ["both"], axis=1),
        node("Unsqueeze", ["both", "two"], ["features"]),
    ]
    save(tmp_path / "backbone.onnx", backbone, {"pixels": (TensorProto.UINT8, 4)}, ["features"])
    (tmp_path / "preprocessing.json").write_text(json.dumps({"size": 2, "interpolation": "bicubic"}))
    Vocabulary(WORDS).save(tmp_path / Vocabulary.FILE)
    return tmp_path


def encoded(red: int) -> str:
    buffer = BytesIO()
    Image.new("RGB", (3, 3), (red, 7, 7)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_each_row_has_the_score_of_its_pair(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_model, "IMAGES", 3)
    monkeypatch.setattr(pair_model, "SENTENCES", 4)
    model = open_model(exported)
    assert isinstance(model, PairScorerModel)
    assert model.columns == ("text", "image", "features")
    generator = np.random.default_rng(4)
    rows, expected = [], []
    for _ in range(60):
        words = generator.integers(0, 6, generator.integers(1, 4)).tolist()
        value = int(generator.integers(0, 5))
        row = {"text": " ".join(WORDS[word] for word in words), "image": encoded(value), "features": None}
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


def test_the_example_is_accepted(exported: Path) -> None:
    model = PairScorerModel(PairScorer(exported))
    assert model.example().columns.tolist() == ["text", "image"]
    assert len(model.predict(model.example())) == 2
    (exported / "preprocessing.json").unlink()
    model = PairScorerModel(PairScorer(exported))
    assert model.example().columns.tolist() == ["text", "features"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "w1"}, "row 0 has text, expected text and image or features: this model scores pairs"),
        ({"image": "x"}, "row 0 has image, expected text and image or features"),
        ({"text": "w1", "image": "x", "features": [[1.0]]}, "row 0 has text and image and features, expected text and"),
        ({"text": "w1", "image": "x"}, "the image of row 0 cannot be read"),
        ({"text": "w1", "features": [[1.0]] * 3}, "features of 3 cells, expected equally many cells of 2 levels"),
        ({"txt": "w1"}, "no row has text with image or text with features; columns of other names are ignored"),
    ],
)
def test_other_rows_are_refused(exported: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_model(exported).predict(pd.DataFrame([row]))


def test_equal_images_count_once_for_the_limit_of_pixels(exported: Path) -> None:
    model = PairScorerModel(PairScorer(exported), Limits(total_pixels=9))
    frame = pd.DataFrame({"text": ["w1", "w2"], "image": [encoded(1), encoded(1)]})
    assert len(model.predict(frame)) == 2
    with pytest.raises(ValueError, match="the images up to row 1 have 18 pixels"):
        model.predict(frame.assign(image=[encoded(1), encoded(2)]))
