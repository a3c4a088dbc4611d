"""Parameters: overlays and limits of files; every error is one line that names the key and the nearest known word."""

import time
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from runtime.parameters import ParameterError, load, load_yaml, merge, validate
from runtime.spec import ClassRef, Component, FromRegistry, Params, StrictModel, UserPath, replace_values

ROOT = Path(__file__).parents[2]
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join(10 * [f'*a{level - 1}'])}]\n" for level in range(1, 12)
)


class Step(StrictModel):
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses")]
    epochs: int = Field(ge=1)


class Toy(Params):
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))]
    batch_size: int = Field(ge=2)
    root: UserPath | None
    milestones: list[int]
    corpus: Annotated[ClassRef, FromRegistry("bifocal.datasets.corpora", injected=("seed",), paths=("root",))]
    steps: list[Step]
    sorters: list[Annotated[ClassRef, FromRegistry("bifocal.sorters")]]


TOY = Component(name="toy", summary="A toy.", image="cpu", params=Toy, outputs=("toys",))
GOOD: dict[str, Any] = {
    "seed": 1,
    "toy": {
        "loss": {"name": "TripletLoss", "margin": 0.1},
        "batch_size": 4,
        "root": "a/b",
        "milestones": [1, 2],
        "corpus": {"name": "Flickr8k", "root": "data/flickr8k"},
        "steps": [{"loss": "HardestTripletLoss", "epochs": 2}, {"loss": {"name": "InfoNCELoss"}, "epochs": 1}],
        "sorters": ["ExactRankSorter"],
    },
}


def problem(changes: dict[str, Any]) -> str:
    with pytest.raises(ParameterError) as caught:
        validate(merge(GOOD, changes), [TOY])
    return str(caught.value)


def test_valid_values_are_typed() -> None:
    toy = validate(GOOD, [TOY])["toy"]
    assert isinstance(toy, Toy)
    assert toy.root == Path("a/b")
    assert toy.loss.arguments == {"margin": 0.1}
    assert toy.seed == 1
    assert [step.loss.name for step in toy.steps] == ["HardestTripletLoss", "InfoNCELoss"]
    assert toy.sorters[0] == ClassRef(name="ExactRankSorter")


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
        (
            {"toy": {"steps": [{"loss": "InfoNCE", "epochs": 1}]}},
            "toy.steps.0.loss: bifocal.losses has no 'InfoNCE'; did",
        ),
        (
            {"toy": {"steps": [{"loss": "InfoNCELoss", "epoch": 1}]}},
            "toy.steps.0.epoch: unknown key; did you mean 'epochs'",
        ),
        (
            {"toy": {"sorters": [{"name": "PositionwiseLSTMSorter", "hiden": 3}]}},
            "toy.sorters.0: PositionwiseLSTMSorter takes no 'hiden'",
        ),
        ({"toy": {"corpus": {"name": "Scenes", "root": "a"}}}, "toy.corpus: Scenes takes no 'root'"),
        ({"toy": {"corpus": {"name": "Scenes", "seed": 3}}}, "toy.corpus.seed: leave it out, the stage passes it"),
        (
            {"toy": {"loss": {"name": "WeightedSumLoss", "losses": "InfoNCELoss"}}},
            "toy.loss.losses: got 'InfoNCELoss', expected",
        ),
        ({"seed": -1}, "seed: got -1; input should be greater than or equal to 0"),
        ({"toy": {"loss": {"name": "TripletLos", "margin": 0.1}}}, "toy.loss: bifocal.losses has no 'TripletLos'; did"),
        (
            {"toy": {"loss": {"name": "TripletLoss", "margn": 0.1}}},
            "TripletLoss takes no 'margn'; did you mean 'margin'?",
        ),
        ({"toy": {"loss": {"margin": "wide"}}}, "toy.loss.margin: got 'wide'; input should be a valid number"),
        (
            {"toy": {"loss": {"name": "WeightedSumLoss", "losses": [{"name": "TripletLoss", "margn": 0.1}]}}},
            "toy.loss.losses.0: TripletLoss takes no 'margn'; did you mean 'margin'?",
        ),
        (
            {"toy": {"loss": {"name": "WeightedSumLoss", "losses": [{"name": "InfoNCELoss"}, {"margin": 0.1}]}}},
            "toy.loss.losses.1: got {'margin': 0.1}, expected the name of a part",
        ),
    ],
)
def test_error_names_the_key_and_the_nearest_word(changes: dict[str, Any], expected: str) -> None:
    assert expected in problem(changes)


def test_missing_key_and_missing_section_are_errors() -> None:
    with pytest.raises(ParameterError, match=r"toy\.root: missing"):
        validate({"seed": 1, "toy": {k: v for k, v in GOOD["toy"].items() if k != "root"}}, [TOY])
    with pytest.raises(ParameterError, match="toy: the section is missing"):
        validate({"seed": 1}, [TOY])


def test_sections_of_other_stages_are_known_by_name() -> None:
    values = {**GOOD, "other": {"typo": 1}}
    assert list(validate(values, [TOY], others=["other"])) == ["toy"]
    with pytest.raises(ParameterError, match="othr: unknown section; did you mean 'other'"):
        validate({**GOOD, "othr": {}}, [TOY], others=["other"])


def test_all_errors_are_reported_at_once() -> None:
    text = problem({"toy": {"batch_size": 1, "milestones": "x"}, "sed": 2})
    assert all(place in text for place in ("toy.batch_size", "toy.milestones", "sed: unknown"))


def test_type_error_does_not_hide_errors_of_parts() -> None:
    text = problem({"toy": {"batch_size": "many", "loss": {"name": "TripletLos"}}})
    assert "toy.batch_size: got 'many'" in text
    assert "toy.loss: bifocal.losses has no 'TripletLos'" in text


@pytest.mark.parametrize("section", [None, "loss", [1, 2]])
def test_section_that_is_not_a_mapping_is_an_error(section: object) -> None:
    with pytest.raises(ParameterError, match=r"toy: got .*, expected a section"):
        validate({"seed": 1, "toy": section}, [TOY])


def test_user_paths_are_found_in_parts_and_replaced() -> None:
    paths = TOY.user_paths(GOOD["toy"])
    assert paths == {("root",): "a/b", ("corpus", "root"): "data/flickr8k"}
    replaced = replace_values(GOOD["toy"], {("corpus", "root"): "elsewhere"})
    assert replaced["corpus"]["root"] == "elsewhere"
    assert GOOD["toy"]["corpus"]["root"] == "data/flickr8k"


def test_user_paths_are_found_in_lists_of_nested_parts() -> None:
    nested = {"corpus": {"name": "Joined", "parts": [{"name": "A"}, {"name": "B", "root": "data/b"}, "C"]}}
    paths = TOY.user_paths(nested)
    assert paths == {("corpus", "parts", 1, "root"): "data/b"}
    assert replace_values(nested, {next(iter(paths)): "elsewhere"})["corpus"]["parts"][1]["root"] == "elsewhere"


def test_recipes_and_settings_overlay_the_file(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 1\ntoy: {loss: {name: TripletLoss, margin: 0.1}, batch_size: 4}\n")
    (tmp_path / "recipe.yaml").write_text("toy: {loss: {name: HardestTripletLoss, margin: 0.3}}\n")
    found = load(tmp_path / "params.yaml", [tmp_path / "recipe.yaml"], ["toy.batch_size=8", "toy.loss.margin=0.5"])
    assert found == {"seed": 1, "toy": {"loss": {"name": "HardestTripletLoss", "margin": 0.5}, "batch_size": 8}}
    found = load(tmp_path / "params.yaml", [], ["toy.loss.name=HardestTripletLoss"])
    assert found["toy"]["loss"] == {"name": "HardestTripletLoss", "margin": 0.1}
    found = load(tmp_path / "params.yaml", [], ["toy.loss={name: InfoNCELoss}"])
    assert found["toy"]["loss"] == {"name": "InfoNCELoss"}


def test_named_part_replaces_the_previous_arguments() -> None:
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "line 5: more than 100,000 values"),
        ("[" * 200 + "]" * 200, "more than 100 levels"),
        ("a:\n" + "\n".join(" " * level + "- " for level in range(150)), "more than 100 levels"),
        ("x: " + "y" * 2**20, "1,048,579 characters, more than 1,048,576"),
        ("[" + "0," * 200_000 + "]", "more than 100,000 values"),
    ],
)
def test_a_text_above_a_limit_is_refused_at_once(text: str, message: str) -> None:
    start = time.monotonic()
    with pytest.raises(yaml.YAMLError, match=message):
        load_yaml(text)
    assert time.monotonic() - start < 10


def test_aliases_within_the_limits_are_those_of_pyyaml() -> None:
    text = "base: &base {a: 1, b: [2, 3]}\nother: {<<: *base, b: &list [4]}\nthird: [*list, *base]"
    assert load_yaml(text) == yaml.safe_load(text)
    assert load_yaml("") is None
