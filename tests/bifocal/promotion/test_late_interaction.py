"""Acceptance of a model that scores pairs: it is ranked by its scoring graph, like the same model
with vectors."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from bifocal.datasets import Dataset
from bifocal.promotion import exported_model
from bifocal.promotion.exported_model import ExportedModel
from tests.bifocal.promotion.tiny_models import OPSET, decide, tiny_model, write_colors

IMAGES = 50


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_colors(tmp_path_factory.mktemp("colors") / "dataset", IMAGES)


def scoring_pairs(model: ExportedModel) -> ExportedModel:
    """Return the model with one cell per image and one word per sentence, whose score is their dot
    product."""
    axes, shapes = (
        {"cells": [1, 2], "words": [1]},
        {"cells": [None, 1, 1, 3], "words": [None, 1, 3]},
    )
    for name, output in (("image_encoder", "cells"), ("text_encoder", "words")):
        file = model.directory / f"{name}.onnx"
        graph = onnx.load(file).graph
        graph.node.append(helper.make_node("Unsqueeze", ["embeddings", "new"], [output]))
        graph.initializer.append(
            helper.make_tensor("new", TensorProto.INT64, [len(axes[output])], axes[output])
        )
        values = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shapes[output])]
        outputs = values if output == "cells" else [*graph.output, *values]
        made = helper.make_graph(graph.node, name, list(graph.input), outputs, graph.initializer)
        onnx.save(helper.make_model(made, opset_imports=OPSET, ir_version=9), str(file))
    ranks = {"cells": 4, "sentences": 2, "words": 3}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
        for name, rank in ranks.items()
    ]
    nodes = [
        helper.make_node("ReduceSum", ["cells", "axes"], ["images"], keepdims=0),
        helper.make_node("Transpose", ["sentences"], ["columns"], perm=[1, 0]),
        helper.make_node("MatMul", ["images", "columns"], ["scores"]),
        helper.make_node("Shape", ["words"], ["unused"]),
    ]
    output = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, None])
    axes_of_images = helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2])
    made = helper.make_graph(nodes, "scores", inputs, [output], [axes_of_images])
    onnx.save(
        helper.make_model(made, opset_imports=OPSET, ir_version=9),
        str(model.directory / "scores.onnx"),
    )
    return model


def test_model_of_pairs_is_ranked_and_compared_like_one_of_vectors(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported_model, "SCORED_IMAGES", 7)
    monkeypatch.setattr(exported_model, "SCORED_CAPTIONS", 11)
    vectors = tiny_model(tmp_path / "vectors", dataset, 0.3)
    pairs = scoring_pairs(tiny_model(tmp_path / "pairs", dataset, 0.3))
    split = dataset.split("test")
    ranks = pairs.rank(split, None)
    assert ranks["rank"].nunique() > 3
    assert ranks.equals(vectors.rank(split, None))
    result = decide(dataset, pairs, vectors)
    assert result.record()["metrics"]["gain"] == 0.0
    assert [reason for reason in result.reasons if "latency" in reason] == []
    better = tiny_model(tmp_path / "better", dataset, 0.0)
    assert decide(dataset, better, pairs).reasons == []
