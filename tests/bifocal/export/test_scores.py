"""The graph that scores images and sentences of a late-interaction model."""

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from bifocal.export.encoders import branch_module, branches, example_inputs, export_encoder
from bifocal.export.graphs.parity import compare_encoder
from bifocal.models import GroundingModel, build_model, save_model

ABLATIONS: list[dict[str, Any]] = [
    {},
    {"unit_sentence": True, "word_sharpness": 40.0},
    {"softmax": True, "word_level": 1, "sentence_level": 0},
]


def new_model(arguments: dict[str, Any]) -> GroundingModel:
    torch.manual_seed(0)
    parts = {
        "image_encoder": {"name": "MultiLevelEncoder", "levels": 2},
        "text_encoder": "ElmoMixtureEncoder",
    }
    ref = {"name": "GroundingModel", "dim": 6, **parts, **arguments}
    model = build_model(ref, feature_dim=5, text_dim=8, text_format="contextual").eval()
    assert isinstance(model, GroundingModel)
    return model


@pytest.mark.parametrize("arguments", ABLATIONS)
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 3), (5, 20)])
def test_scores_of_the_graph_are_those_of_the_model(
    arguments: dict[str, Any], batch: int, length: int
) -> None:
    model = new_model(arguments)
    cells, sentences, words = example_inputs(model, "scores", batch, length, seed=length)
    with torch.inference_mode():
        expected = model.score(cells, (sentences, words)).cross
        torch.testing.assert_close(
            branch_module(model, "scores")(cells, sentences, words), expected
        )
    assert expected.shape == (batch, batch + 1)


def test_exported_scores_have_dynamic_dimensions(tmp_path: Path) -> None:
    """The other two graphs are exported as for every encoder: see ``tests/contracts``."""
    model, file = new_model({}), tmp_path / "scores.onnx"
    assert branches(model) == ("image_encoder", "text_encoder", "scores")
    save_model(tmp_path, model)
    export_encoder(tmp_path, "scores", file)
    parities = list(compare_encoder(tmp_path, "scores", file, seed=1))
    assert len(parities) == 9
    assert max(parity.difference for parity in parities) < 1e-5
    inputs = {value.name: value.type.tensor_type.shape.dim for value in onnx.load(file).graph.input}
    assert [dim.dim_param or dim.dim_value for dim in inputs["cells"]] == [
        "images",
        "levels",
        "regions",
        6,
    ]
    assert [dim.dim_param or dim.dim_value for dim in inputs["words"]] == ["sentences", "time", 6]
