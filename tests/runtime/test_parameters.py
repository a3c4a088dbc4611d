"""params.yaml, recipes and --set: every mistake is one line that names the place and the nearest known word."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from pydantic import Field

from components.__main__ import main
from components.catalog import configurable_components, pipeline_components
from runtime.parameters import ParameterError, load, merge, validate
from runtime.spec import ClassRef, Component, FromRegistry, Params, UserPath

ROOT = Path(__file__).parents[2]


class Toy(Params):
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))]
    batch_size: int = Field(ge=2)
    root: UserPath | None
    milestones: list[int]


TOY = Component(name="toy", summary="A toy.", image="cpu", params=Toy, outputs=("toys",))
GOOD: dict[str, Any] = {
    "seed": 1,
    "toy": {"loss": {"name": "TripletLoss", "margin": 0.1}, "batch_size": 4, "root": "a/b", "milestones": [1, 2]},
}


def problem(changes: dict[str, Any]) -> str:
    with pytest.raises(ParameterError) as caught:
        validate(merge(GOOD, changes), [TOY])
    return str(caught.value)


def test_good_values_come_typed() -> None:
    toy = validate(GOOD, [TOY])["toy"]
    assert isinstance(toy, Toy)
    assert toy.root == Path("a/b")
    assert toy.loss.arguments == {"margin": 0.1}
    assert toy.seed == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"toys": {}}, "toys: unknown section; did you mean 'toy'?"),
        ({"toy": {"batchsize": 3}}, "toy.batchsize: unknown key; did you mean 'batch_size'?"),
        ({"toy": {"batch_size": "many"}}, "toy.batch_size: got 'many'; input should be a valid integer"),
        ({"toy": {"batch_size": 1.5}}, "toy.batch_size: got 1.5; input should be a valid integer"),
        ({"toy": {"batch_size": True}}, "toy.batch_size: got True; input should be a valid integer"),
        ({"toy": {"batch_size": 1}}, "toy.batch_size: got 1; input should be greater than or equal to 2"),
        ({"toy": {"milestones": [1, "x"]}}, "toy.milestones.1: got 'x'; input should be a valid integer"),
        ({"seed": -1}, "seed: got -1; input should be greater than or equal to 0"),
        ({"toy": {"loss": {"name": "TripletLos", "margin": 0.1}}}, "toy.loss: bifocal.losses has no 'TripletLos'; did"),
        (
            {"toy": {"loss": {"name": "TripletLoss", "margn": 0.1}}},
            "TripletLoss takes no 'margn'; did you mean 'margin'?",
        ),
        ({"toy": {"loss": {"margin": "wide"}}}, "toy.loss.margin: got 'wide'; input should be a valid number"),
        (
            {"toy": {"loss": {"name": "WeightedSumLoss", "losses": [{"name": "TripletLoss", "margn": 0.1}]}}},
            "toy.loss.losses[0]: TripletLoss takes no 'margn'; did you mean 'margin'?",
        ),
        (
            {"toy": {"loss": {"name": "WeightedSumLoss", "losses": [{"name": "InfoNCELoss"}, {"margin": 0.1}]}}},
            "toy.loss.losses[1]: got {'margin': 0.1}; write {name: ...}",
        ),
    ],
)
def test_a_mistake_is_explained(changes: dict[str, Any], expected: str) -> None:
    assert expected in problem(changes)


def test_a_missing_key_and_a_missing_section() -> None:
    with pytest.raises(ParameterError, match=r"toy\.root: missing"):
        validate({"seed": 1, "toy": {k: v for k, v in GOOD["toy"].items() if k != "root"}}, [TOY])
    with pytest.raises(ParameterError, match="toy: the section is missing"):
        validate({"seed": 1}, [TOY])


def test_all_mistakes_are_told_at_once() -> None:
    text = problem({"toy": {"batch_size": 1, "milestones": "x"}, "sed": 2})
    assert all(place in text for place in ("toy.batch_size", "toy.milestones", "sed: unknown"))


def test_recipes_and_settings_overlay(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 1\ntoy: {loss: {name: TripletLoss, margin: 0.1}, batch_size: 4}\n")
    (tmp_path / "recipe.yaml").write_text("toy: {loss: {name: HardestTripletLoss, margin: 0.3}}\n")
    found = load(tmp_path / "params.yaml", [tmp_path / "recipe.yaml"], ["toy.batch_size=8", "toy.loss.margin=0.5"])
    assert found == {"seed": 1, "toy": {"loss": {"name": "HardestTripletLoss", "margin": 0.5}, "batch_size": 8}}
    found = load(tmp_path / "params.yaml", [], ["toy.loss.name=HardestTripletLoss"])
    assert found["toy"]["loss"] == {"name": "HardestTripletLoss", "margin": 0.1}
    found = load(tmp_path / "params.yaml", [], ["toy.loss={name: InfoNCELoss}"])
    assert found["toy"]["loss"] == {"name": "InfoNCELoss"}


def test_a_part_that_is_named_brings_its_own_arguments() -> None:
    base = {"part": {"name": "A", "of_a": 1}}
    for name in "AB":
        assert merge(base, {"part": {"name": name, "more": 2}}) == {"part": {"name": name, "more": 2}}
    assert merge(base, {"part": {"more": 2}}) == {"part": {"name": "A", "of_a": 1, "more": 2}}


@pytest.mark.parametrize(
    ("text", "expected"), [("- a\n", "expected sections"), ("a: [", "is not YAML"), (None, "no such file")]
)
def test_a_file_that_is_no_parameters(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "params.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ParameterError, match=expected):
        load(file)


def test_a_setting_needs_a_value() -> None:
    with pytest.raises(ParameterError, match="expected KEY=VALUE"):
        load(ROOT / "params.yaml", [], ["toy.batch_size"])


@pytest.mark.parametrize("recipe", [None, *sorted((ROOT / "recipes").glob("*.yaml"))], ids=str)
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
