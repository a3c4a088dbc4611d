"""Tables of the READMEs, rendered from the declarations."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from pipelines.commands.render import component_blocks, fill
from runtime.spec import ClassRef, Component, FromRegistry, Params, StrictModel


class Phase(StrictModel):
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses")] = Field(description="training loss")
    epochs: int = Field(ge=1, description="passes over all captions")


class Toy(Params):
    phases: list[Phase] = Field(description="training phases")
    limit: float | None = Field(gt=0, description="upper limit | null: none")


TOY = Component(
    name="toy",
    summary="A toy.",
    image="cpu",
    params=Toy,
    inputs=("dataset",),
    outputs=("toys", "games"),
)
SECTION = {"phases": [{"loss": "TripletLoss", "epochs": 3}], "limit": None}


def test_tables_show_artifacts_parameters_and_parts() -> None:
    blocks = component_blocks(TOY, SECTION, {})
    assert (
        blocks["artifacts"].splitlines()[2] == "|`dataset` (of `prepare_dataset`)|`toys`, `games`|"
    )
    assert blocks["parameters"].splitlines()[2:] == [
        "|`phases`||list of groups|training phases|",
        "|`phases.0.loss`|`TripletLoss`|part|training loss|",
        "|`phases.0.epochs`|`3`|integer ≥ 1|passes over all captions|",
        "|`limit`|`null`|number > 0 or null|upper limit \\| null: none|",
    ]
    assert any(line.startswith("|`TripletLoss`|") for line in blocks["parts"].splitlines())
    elsewhere = component_blocks(TOY, SECTION, {"bifocal.losses": "train"})
    assert elsewhere["parts"] == "`bifocal.losses`: [train](../train/README.md#parameters).\n"


def test_component_without_a_section_has_no_parameters() -> None:
    component = Component(
        name="toy", summary="", image="cpu", params=Toy, outputs=(), has_parameters=False
    )
    assert component_blocks(component, {}, {}) == {
        "artifacts": "|inputs|outputs|\n|---|---|\n|none|none|\n"
    }


def test_blocks_are_replaced_and_other_text_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("# toy\n\n<!-- rendered: artifacts -->\nold\n<!-- end -->\n\ntext\n")
    text = fill(file, {"artifacts": "| new |\n"})
    assert text == "# toy\n\n<!-- rendered: artifacts -->\n\n| new |\n\n<!-- end -->\n\ntext\n"
    file.write_text(text)
    assert fill(file, {"artifacts": "| new |\n"}) == text


def test_missing_readme_or_block_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    with pytest.raises(ValueError, match=r"README\.md is missing: .* the blocks artifacts"):
        fill(file, {"artifacts": ""})
    file.write_text("# toy\n")
    with pytest.raises(ValueError, match="has the blocks none, expected artifacts, parameters"):
        fill(file, {"artifacts": "", "parameters": ""})
