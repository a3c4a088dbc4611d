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
        ({"image_retrieval": {"R@1": 12.345}, "pointing": {"accuracy": 50.0}}, {"image_retrieval.R_at_1": "12.35"}),
        ({"pointing": {"accuracy": 50.0}}, {}),
    ],
    ids=["retrieval", "pointing alone"],
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
    assert stage.run(params, metrics=tmp_path, onnx=tmp_path, registration=tmp_path) == {"version": 7}
    assert registered[0]["tags"] == tags
    written = json.loads((tmp_path / "registration.json").read_text())
    assert written == {"model": "m", "version": 7, "alias": "candidate"}
