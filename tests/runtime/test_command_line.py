"""Command line of a component: help text, options and errors."""

from pathlib import Path
from typing import Annotated

import click
import pytest
import yaml
from click.testing import CliRunner
from pydantic import Field

from runtime.command_line import command_line
from runtime.process import TERMINATION_LOG, run
from runtime.spec import ClassRef, Component, FromRegistry, Params, StrictModel


class Mining(StrictModel):
    neighbors: int = Field(ge=1, description="nearest neighbors per query")


class Phase(StrictModel):
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="training loss"
    )
    epochs: int = Field(ge=1, description="passes over all captions")


class Toy(Params):
    phases: list[Phase] = Field(description="training phases")
    mining: Mining | None = Field(description="negative mining; null for none")
    sorters: list[Annotated[ClassRef, FromRegistry("bifocal.sorters")]] = Field(
        description="sorters to compare"
    )


TOY = Component(
    name="toy",
    summary="Train a toy.",
    image="cpu",
    params=Toy,
    inputs=("dataset",),
    outputs=("toys",),
    merge_step="glue",
)
GLUE = Component(
    name="glue",
    summary="Merge.",
    image="cpu",
    params=Params,
    outputs=("toys",),
    has_parameters=False,
)
VALUES = {
    "seed": 1,
    "toy": {
        "phases": [{"loss": {"name": "WeightedSumLoss", "losses": ["TripletLoss"]}, "epochs": 3}],
        "mining": None,
        "sorters": ["ExactRankSorter"],
    },
}


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> click.Group:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(VALUES))
    return command_line({"toy": TOY, "glue": GLUE})


def help_lines(main: click.Group, component: str) -> list[str]:
    output = (
        CliRunner()
        .invoke(main, [component, "--help"], terminal_width=200, catch_exceptions=False)
        .output
    )
    return output.splitlines()


def test_help_lists_artifacts(main: click.Group) -> None:
    lines = help_lines(main, "toy")
    assert "  artifacts/dataset  input" in lines
    assert "  artifacts/toys     output" in lines


def test_help_shows_values_types_and_descriptions_of_nested_groups(main: click.Group) -> None:
    lines = help_lines(main, "toy")
    start = lines.index("  phases:")
    assert lines[start : start + 4] == [
        "  phases:",
        "    training phases [list of groups]",
        "    0:",
        "      loss: {losses: [TripletLoss], name: WeightedSumLoss}",
    ]
    assert (
        lines[lines.index("      epochs: 3") + 1]
        == "        passes over all captions [integer ≥ 1]"
    )


def test_help_shows_the_keys_of_a_group_that_is_null(main: click.Group) -> None:
    lines = help_lines(main, "toy")
    start = lines.index("  mining: null")
    assert lines[start + 1 : start + 4] == [
        "    negative mining; null for none [group or null]",
        "    neighbors:",
        "      nearest neighbors per query [integer ≥ 1]",
    ]


def test_help_lists_the_registered_parts_and_the_arguments_of_the_chosen_one(
    main: click.Group,
) -> None:
    lines = help_lines(main, "toy")
    text = "\n".join(lines)
    assert "parts of bifocal.losses: " in text
    assert "HardestTripletLoss" in text
    assert "        arguments of WeightedSumLoss:" in lines
    # Arguments of a part within the arguments of a part, with their defaults.
    assert any(line.strip().startswith("margin: ") and line.endswith("(default)") for line in lines)
    assert "  sorters: [ExactRankSorter]" in lines


def test_help_of_a_cluster_step_has_one_option(main: click.Group) -> None:
    text = "\n".join(help_lines(main, "glue"))
    assert "--executor-input" in text
    assert "--params" not in text


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["toy", "--shard", "1/2", "--merge", "2"], "--shard and --merge exclude each other"),
        (["glue"], "Kubeflow runs glue, with --executor-input"),
    ],
)
def test_wrong_usage_is_an_error(main: click.Group, command: list[str], message: str) -> None:
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert message in result.output


def test_a_section_without_a_stage_is_an_error(main: click.Group) -> None:
    result = CliRunner().invoke(main, ["toy", "--set", "glue.x=1"])
    assert "glue: unknown section; Available: pipeline, seed, toy." in str(result.exception)


def test_error_that_a_user_can_fix_is_printed_without_traceback(
    main: click.Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["components", "toy", "--set", "toy.phases.0.epochs=0"])
    with pytest.raises(SystemExit) as end:
        run(main, "components")
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "error: parameters:\n  toy.phases.0.epochs: got 0; input should be greater than or "
        "equal to 1\n"
    )


def test_error_in_a_pod_is_its_termination_message(
    main: click.Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "termination-log"
    file.touch()  # the kubelet makes it
    monkeypatch.setenv(TERMINATION_LOG, str(file))
    monkeypatch.setattr("sys.argv", ["components", "toy", "--set", "toy.phases.0.epochs=0"])
    with pytest.raises(SystemExit):
        run(main, "components")
    assert file.read_text().startswith("parameters:\n  toy.phases.0.epochs: got 0")
