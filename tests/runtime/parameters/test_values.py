"""Values of ``params.yaml`` with recipes and settings."""

from pathlib import Path

import pytest

from runtime.parameters import ParameterError, load, merge

ROOT = Path(__file__).parents[3]


def test_recipes_and_settings_overlay_the_file(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 1\ntoy: {loss: {name: TripletLoss, margin: 0.1}, batch_size: 4}\n")
    (tmp_path / "recipe.yaml").write_text("toy: {loss: {name: HardestTripletLoss, margin: 0.3}}\n")
    found = load(tmp_path / "params.yaml", [tmp_path / "recipe.yaml"], ["toy.batch_size=8", "toy.loss.margin=0.5"])
    assert found == {"seed": 1, "toy": {"loss": {"name": "HardestTripletLoss", "margin": 0.5}, "batch_size": 8}}
    found = load(tmp_path / "params.yaml", [], ["toy.loss.name=HardestTripletLoss"])
    assert found["toy"]["loss"] == {"name": "HardestTripletLoss", "margin": 0.1}
    found = load(tmp_path / "params.yaml", [], ["toy.loss={name: InfoNCELoss}"])
    assert found["toy"]["loss"] == {"name": "InfoNCELoss"}


def test_named_part_replaces_the_former_arguments() -> None:
    base = {"part": {"name": "A", "of_a": 1}}
    for name in "AB":
        assert merge(base, {"part": {"name": name, "more": 2}}) == {"part": {"name": name, "more": 2}}
    assert merge(base, {"part": {"more": 2}}) == {"part": {"name": "A", "of_a": 1, "more": 2}}


@pytest.mark.parametrize(
    ("text", "expected"), [("- a\n", "expected sections"), ("a: [", "is not YAML"), (None, "no such file")]
)
def test_invalid_file_is_an_error(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "params.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ParameterError, match=expected):
        load(file)


def test_setting_without_a_value_is_an_error() -> None:
    with pytest.raises(ParameterError, match="expected KEY=VALUE"):
        load(ROOT / "params.yaml", [], ["toy.batch_size"])


def test_setting_changes_one_entry_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("toy: {steps: [{epochs: 1, loss: InfoNCELoss}, {epochs: 2}]}\n")
    values = load(tmp_path / "params.yaml", [], ["toy.steps.1.epochs=5", "toy.steps.0.loss.temperature=0.1"])
    assert values["toy"]["steps"] == [{"epochs": 1, "loss": {"name": "InfoNCELoss", "temperature": 0.1}}, {"epochs": 5}]
    with pytest.raises(ParameterError, match=r"the list has no entry 2; it has 2, counted from 0"):
        load(tmp_path / "params.yaml", [], ["toy.steps.2.epochs=5"])
