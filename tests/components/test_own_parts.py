"""Parts of a module outside the repository, in parameters."""

from pathlib import Path

import pytest

from components.catalog import configurable_components
from runtime import parameters
from runtime.parameters import ParameterError

SOURCE = """
class OwnLoss:
    def __init__(self, scale: float = 5.0) -> None:
        self.scale = scale
"""


def test_a_recipe_names_a_class_of_any_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe_parts.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    root = Path(__file__).parents[2]
    values = parameters.load(
        root / "params.yaml", settings=["train_embedding.phases.0.loss=recipe_parts:OwnLoss"]
    )
    parameters.validate(values, configurable_components().values())
    loss = ["train_embedding.phases.0.loss=recipe_parts:OtherLoss"]
    wrong = parameters.overlay(values, parameters.layers([], loss))
    with pytest.raises(
        ParameterError, match=r"train_embedding\.phases\.0\.loss: module recipe_parts has no class"
    ):
        parameters.validate(wrong, configurable_components().values())
