"""Pictures of docs/pictures are current."""

import json

import pytest

from docs.make_pictures import INPUTS, PICTURES, PLOTS, SCREENSHOTS, SOURCES, drawings, inputs


def test_drawings_are_those_of_the_code() -> None:
    expected = drawings()
    assert {path.name for path in PICTURES.glob("*.svg")} == expected.keys()
    stale = [name for name, text in expected.items() if (PICTURES / name).read_text() != text]
    assert not stale, "run 'python -m docs.make_pictures'"


@pytest.mark.parametrize("picture", SOURCES)
def test_picture_of_a_run_is_as_old_as_its_code(picture: str) -> None:
    assert inputs(picture) == json.loads(INPUTS.read_text())[picture], (
        f"{picture}, or code or parameters behind it, changed: run 'make repro', 'python -m "
        "components evaluate --set evaluate.report.queries=2' and 'python -m "
        "docs.make_pictures --run .'"
    )


def test_every_picture_is_made_by_the_command_or_was_taken_on_a_cluster() -> None:
    taken = {"kubeflow_graph.jpg", "kubeflow_outputs.jpg"}
    made = {*drawings(), *SOURCES, *SCREENSHOTS, *PLOTS, INPUTS.name}
    assert {path.name for path in PICTURES.iterdir()} == taken | made
