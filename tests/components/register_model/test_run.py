"""Tags of a registered version: the recalls of an evaluation that has them."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.register_model import run as stage
from components.register_model.spec import RegisterModelParams


@pytest.mark.parametrize(
    ("report", "tags"),
    [
        (
            {"image_retrieval": {"R@1": 12.345}, "pointing": {"accuracy": 50.0}},
            {"image_retrieval.R_at_1": "12.35"},
        ),
        ({"pointing": {"accuracy": 50.0}}, {}),
    ],
    ids=["retrieval", "only pointing"],
)
def test_recalls_are_tags(
    report: dict[str, Any], tags: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps(report))
    (tmp_path / stage.CARD).write_text("# A model\n")
    registered: list[dict[str, Any]] = []

    def register(model: str, alias: str, **arguments: Any) -> int:
        registered.append(arguments)
        return 7

    monkeypatch.setattr(stage, "register_exported", register)
    params = RegisterModelParams(seed=1, model="m", alias="candidate")
    assert stage.run(params, metrics=tmp_path, onnx=tmp_path, registration=tmp_path) == {
        "version": 7
    }
    assert registered[0]["tags"] == tags
    assert "int8" not in registered[0]["description"]
    written = json.loads((tmp_path / "registration.json").read_text())
    assert written == {"model": "m", "version": 7, "alias": "candidate"}


def test_the_description_compares_graphs_of_int8_with_those_of_float32(tmp_path: Path) -> None:
    values = {"megabytes": 23.53, "caption_recall": 41.0, "image_recall": 33.25}
    (tmp_path / "quantization.json").write_text(
        json.dumps({"float32": values, "int8": values | {"megabytes": 6.0}})
    )
    table = stage._precisions(tmp_path / "quantization.json")
    assert "| float32 | 23.5 | 41.0 / 33.2 |\n| int8 | 6.0 | 41.0 / 33.2 |\n" in table
