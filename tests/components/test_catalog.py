"""Declarations of the stages: discovery, committed parameters, ``--help``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from components.__main__ import main
from components.catalog import all_components, configurable_components, pipeline_components
from runtime.parameters import load, validate
from runtime.spec import ClassRef, nested_models

ROOT = Path(__file__).parents[2]


def test_committed_parameters_are_valid() -> None:
    """``tests/test_recipes.py`` has the recipes."""
    values = load(ROOT / "params.yaml")
    assert list(validate(values, configurable_components().values())) == list(
        configurable_components()
    )


def test_every_component_is_found_by_its_folder() -> None:
    for name, component in all_components().items():
        assert component.name == name
        assert (ROOT / f"{component.module.replace('.', '/')}.py").is_file()
    assert all(configurable_components()[stage.name] is stage for stage in pipeline_components())


def descriptions(model: type[BaseModel]) -> Iterator[str]:
    for field in model.model_fields.values():
        assert field.description, f"{model.__name__} has a field without a description"
        yield field.description
        for group in nested_models(field):
            if not issubclass(group, ClassRef):
                yield from descriptions(group)


@pytest.mark.parametrize("stage", configurable_components())
def test_help_describes_every_parameter(stage: str) -> None:
    text = " ".join(
        CliRunner().invoke(main, [stage, "--help"], catch_exceptions=False).output.split()
    )
    for description in descriptions(configurable_components()[stage].params):
        assert " ".join(description.split()) in text


def test_help_explains_the_phases_and_their_parts() -> None:
    text = " ".join(CliRunner().invoke(main, ["train_embedding", "--help"]).output.split())
    parts = "CaptionBatches, DistinctImageBatches, MinedTriplets, OrderedTriplets, PhraseBoxes"
    assert f"parts of bifocal.training.batches: {parts}" in text
    assert "captions_per_image: 5 captions of an image that stay together in a batch" in text
    assert "parts of bifocal.training.schedules: Constant, Cosine, MultiStep, Step" in text
    assert "temperature: 0.07" in text
