"""Declarations of the stages: discovery, committed parameters, ``--help``."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from components.__main__ import main
from components.catalog import configurable_components, pipeline_components
from runtime.parameters import load, validate

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("recipe", [None, *sorted((ROOT / "recipes").rglob("*.yaml"))], ids=str)
def test_committed_parameters_are_valid(recipe: Path | None) -> None:
    values = load(ROOT / "params.yaml", [recipe] if recipe else [])
    assert list(validate(values, configurable_components().values())) == list(configurable_components())


def test_every_stage_of_the_line_is_a_folder_here() -> None:
    found = configurable_components()
    assert all(found[component.name] is component for component in pipeline_components())
    assert all(name == component.name for name, component in found.items())


def test_help_explains_every_value_and_those_of_groups() -> None:
    for name, stage in configurable_components().items():
        text = " ".join(CliRunner().invoke(main, [name, "--help"]).output.split())
        for field in stage.params.model_fields.values():
            assert " ".join((field.description or "?").split()) in text
    text = CliRunner().invoke(main, ["train_embedding", "--help"]).output
    # A group that is null shows which values it would have; one that is given shows them.
    assert "  mining: null\n" in text
    assert "    neighbours:\n      images of the nearest texts" in text
    assert "    fine_tuning:\n" in text
    assert "    epochs: 16\n" in CliRunner().invoke(main, ["extract_features", "--help"]).output
