"""Parameters: overlays and limits of files; every error is one line that names the key and the
nearest known word."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from runtime.parameters import (
    ParameterError,
    load,
    merge,
    validate,
)
from runtime.spec import (
    Alias,
    ClassRef,
    Component,
    FromRegistry,
    ModelName,
    Params,
    StrictModel,
    UserPath,
    replace_values,
)

ROOT = Path(__file__).parents[2]


class Step(StrictModel):
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses")]
    epochs: int = Field(ge=1)


class Toy(Params):
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))]
    batch_size: int = Field(ge=2)
    root: UserPath | None
    milestones: list[int]
    corpus: Annotated[
        ClassRef, FromRegistry("bifocal.datasets.corpora", injected=("seed",), paths=("root",))
    ]
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
        "steps": [
            {"loss": "HardestTripletLoss", "epochs": 2},
            {"loss": {"name": "InfoNCELoss"}, "epochs": 1},
        ],
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
        (
            {"toy": {"batch_size": "many"}},
            "toy.batch_size: got 'many'; input should be a valid integer",
        ),
        ({"toy": {"batch_size": 1.5}}, "toy.batch_size: got 1.5; input should be a valid integer"),
        (
            {"toy": {"batch_size": True}},
            "toy.batch_size: got True; input should be a valid integer",
        ),
        (
            {"toy": {"batch_size": 1}},
            "toy.batch_size: got 1; input should be greater than or equal to 2",
        ),
        (
            {"toy": {"milestones": [1, "x"]}},
            "toy.milestones.1: got 'x'; input should be a valid integer",
        ),
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
        (
            {"toy": {"corpus": {"name": "Scenes", "root": "a"}}},
            "toy.corpus: Scenes takes no 'root'",
        ),
        (
            {"toy": {"corpus": {"name": "Scenes", "seed": 3}}},
            "toy.corpus.seed: leave it out, the stage passes it",
        ),
        (
            {"toy": {"loss": {"name": "WeightedSumLoss", "losses": "InfoNCELoss"}}},
            "toy.loss.losses: got 'InfoNCELoss', expected",
        ),
        ({"seed": -1}, "seed: got -1; input should be greater than or equal to 0"),
        (
            {"toy": {"loss": {"name": "TripletLos", "margin": 0.1}}},
            "toy.loss: bifocal.losses has no 'TripletLos'; did",
        ),
        (
            {"toy": {"loss": {"name": "TripletLoss", "margn": 0.1}}},
            "TripletLoss takes no 'margn'; did you mean 'margin'?",
        ),
        (
            {"toy": {"loss": {"margin": "wide"}}},
            "toy.loss.margin: got 'wide'; input should be a valid number",
        ),
        (
            {
                "toy": {
                    "loss": {
                        "name": "WeightedSumLoss",
                        "losses": [{"name": "TripletLoss", "margn": 0.1}],
                    }
                }
            },
            "toy.loss.losses.0: TripletLoss takes no 'margn'; did you mean 'margin'?",
        ),
        (
            {
                "toy": {
                    "loss": {
                        "name": "WeightedSumLoss",
                        "losses": [{"name": "InfoNCELoss"}, {"margin": 0.1}],
                    }
                }
            },
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
    nested = {
        "corpus": {"name": "Joined", "parts": [{"name": "A"}, {"name": "B", "root": "data/b"}, "C"]}
    }
    paths = TOY.user_paths(nested)
    assert paths == {("corpus", "parts", 1, "root"): "data/b"}
    assert (
        replace_values(nested, {next(iter(paths)): "elsewhere"})["corpus"]["parts"][1]["root"]
        == "elsewhere"
    )


def test_recipes_and_settings_overlay_the_file(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(
        "seed: 1\ntoy: {loss: {name: TripletLoss, margin: 0.1}, batch_size: 4}\n"
    )
    (tmp_path / "recipe.yaml").write_text("toy: {loss: {name: HardestTripletLoss, margin: 0.3}}\n")
    found = load(
        tmp_path / "params.yaml",
        [tmp_path / "recipe.yaml"],
        ["toy.batch_size=8", "toy.loss.margin=0.5"],
    )
    assert found == {
        "seed": 1,
        "toy": {"loss": {"name": "HardestTripletLoss", "margin": 0.5}, "batch_size": 8},
    }
    found = load(tmp_path / "params.yaml", [], ["toy.loss.name=HardestTripletLoss"])
    assert found["toy"]["loss"] == {"name": "HardestTripletLoss", "margin": 0.1}
    found = load(tmp_path / "params.yaml", [], ["toy.loss={name: InfoNCELoss}"])
    assert found["toy"]["loss"] == {"name": "InfoNCELoss"}


def test_named_part_replaces_the_previous_arguments() -> None:
    base = {"part": {"name": "A", "of_a": 1}}
    for name in "AB":
        assert merge(base, {"part": {"name": name, "more": 2}}) == {
            "part": {"name": name, "more": 2}
        }
    assert merge(base, {"part": {"more": 2}}) == {"part": {"name": "A", "of_a": 1, "more": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("- a\n", "expected sections"), ("a: [", "is not YAML"), (None, "no such file")],
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
    (tmp_path / "params.yaml").write_text(
        "toy: {steps: [{epochs: 1, loss: InfoNCELoss}, {epochs: 2}]}\n"
    )
    values = load(
        tmp_path / "params.yaml", [], ["toy.steps.1.epochs=5", "toy.steps.0.loss.temperature=0.1"]
    )
    assert values["toy"]["steps"] == [
        {"epochs": 1, "loss": {"name": "InfoNCELoss", "temperature": 0.1}},
        {"epochs": 5},
    ]
    with pytest.raises(ParameterError, match=r"the list has no entry 2; it has 2, counted from 0"):
        load(tmp_path / "params.yaml", [], ["toy.steps.2.epochs=5"])


def test_a_parameter_called_name_makes_no_part_of_a_section(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("seed: 1\nembed: {name: theirs, source: null}\n")
    (tmp_path / "recipe.yaml").write_text("embed: {name: mine}\n")
    for options in (
        ([tmp_path / "recipe.yaml"], []),
        ([], ["embed={name: mine}"]),
        ([], ["embed.name=mine"]),
    ):
        values = load(tmp_path / "params.yaml", *options)
        assert values["embed"] == {"name": "mine", "source": None}
    assert merge({"labels": {"a": "1"}}, {"labels": {"name": "b"}}, parts=False) == {
        "labels": {"a": "1", "name": "b"}
    }


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_are_finite(number: float) -> None:
    assert "loss.margin: got" in problem(
        {"toy": {"loss": {"name": "TripletLoss", "margin": number}}}
    )

    class Rates(StrictModel):
        one: float = Field(gt=0)
        many: dict[str, list[float]]

    for values in ({"one": number, "many": {}}, {"one": 1.0, "many": {"a": [number]}}):
        with pytest.raises(ValidationError, match=r"finite|greater"):
            Rates.model_validate(values)


@given(st.text(min_size=1, max_size=12))
@example("it's")
@example("team/bifocal")
@example("mein Modell ü")
@example("a?b")
@example("a\tb")
def test_a_model_name_is_accepted_as_mlflow_accepts_it(name: str) -> None:
    from mlflow.store.artifact.utils.models import _parse_model_uri
    from mlflow.utils.search_utils import SearchModelVersionUtils
    from mlflow.utils.validation import _validate_logged_model_name, _validate_model_name

    try:
        TypeAdapter(ModelName).validate_python(name)
    except ValidationError:
        return
    _validate_model_name(name)
    _validate_logged_model_name(name)
    assert _parse_model_uri(f"models:/{name}@champion").name == name
    assert SearchModelVersionUtils.parse_search_filter(f"name = '{name}'")[0]["value"] == name


@pytest.mark.parametrize(
    "name", ["team/bifocal", "a:b", "a.b", "50%", "it's", " ", "", "a\nb", "a?b", 'a"b']
)
def test_a_model_name_that_mlflow_refuses_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="MLflow accepts no model"):
        TypeAdapter(ModelName).validate_python(name)


@pytest.mark.parametrize(
    ("alias", "accepted"),
    [("latest", False), ("v1", False), ("v", True), ("v1a", True), ("A", False), ("latest2", True)],
)
def test_an_alias_that_mlflow_reserves_is_refused(alias: str, accepted: bool) -> None:
    with (
        nullcontext() if accepted else pytest.raises(ValidationError, match="not 'latest' or 'v1'")
    ):
        TypeAdapter(Alias).validate_python(alias)
