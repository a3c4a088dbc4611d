"""Parameters: every error is one line that names the key and the nearest known word."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from runtime.marks import replace_values
from runtime.parameters import ParameterError, merge, validate
from runtime.spec import ClassRef, Component, FromRegistry, Params, StrictModel, UserPath


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
