"""Acceptance of a model that scores pairs: it is ranked by its scoring graph, like the same model
with vectors."""

from pathlib import Path

import onnx
import pytest
from onnx import helper, numpy_helper

from bifocal.datasets import Dataset
from bifocal.promotion import exported_model
from bifocal.promotion.exported_model import ExportedModel
from tests.bifocal.graphs import save_graph, tensor
from tests.bifocal.promotion.tiny_models import decide, tiny_model, write_colors

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
        constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        values = [tensor(output, shapes[output])]
        outputs = values if output == "cells" else [*graph.output, *values]
        save_graph(file, graph.node, graph.input, outputs, constants | {"new": axes[output]})
    inputs = [tensor("cells", 4), tensor("sentences", 2), tensor("words", 3)]
    nodes = [
        helper.make_node("ReduceSum", ["cells", "axes"], ["images"], keepdims=0),
        helper.make_node("Transpose", ["sentences"], ["columns"], perm=[1, 0]),
        helper.make_node("MatMul", ["images", "columns"], ["scores"]),
        helper.make_node("Shape", ["words"], ["unused"]),
    ]
    file = model.directory / "scores.onnx"
    save_graph(file, nodes, inputs, [tensor("scores", 2)], {"axes": [1, 2]})
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
