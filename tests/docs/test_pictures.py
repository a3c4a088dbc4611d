"""Pictures of docs/pictures are current."""

import json
import re

import pytest
from PIL import Image

from benchmarks.common import RESULTS, ROOT, read_results
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


def test_values_beside_the_picture_of_a_report_are_its_own() -> None:
    report = re.sub(r"(<[^>]*>|\s)+", " ", (PICTURES / "report.html").read_text("utf-8"))
    row = r" R@1 ([\d.]+) [\d.]+ to [\d.]+ [\d.]+ ([\d.]+) ([\d.]+) "
    pointing = r"Pointing accuracy ([\d.]+) % 95 %: ([\d.]+) to ([\d.]+); image center ([\d.]+)"
    beside = (
        r"for ([\d.]+) % of the phrases \(([\d.]+) to ([\d.]+)\), the image's center for ([\d.]+)"
    )
    page = (ROOT / "docs" / "results.md").read_text("utf-8").partition("On drawn scenes")[2]
    shown = re.findall(r"^\|[^|]*\|([\d.]+)\|([\d.]+)\|$", page, re.MULTILINE)
    assert shown[:3] == list(zip(*re.findall(row, report), strict=True))
    assert re.findall(beside, page) == re.findall(pointing, report) != []


def test_values_beside_the_plot_of_a_year_are_its_own() -> None:
    failed, *_ = read_results(RESULTS / "robustness.year.json")
    queries, record = failed.reference.split()[0], ROOT / "docs" / "records" / "monitoring.md"
    description = Image.open(PICTURES / "year.png").info["Description"]
    assert description == f"{queries} queries, {failed.value:.0f} failed"
    assert f"none of {queries} queries failed" in record.read_text("utf-8")


def test_every_picture_is_made_by_the_command_or_was_taken_on_a_cluster() -> None:
    taken = {"kubeflow_graph.jpg", "kubeflow_outputs.jpg"}
    made = {*drawings(), *SOURCES, *SCREENSHOTS, *PLOTS, INPUTS.name}
    assert {path.name for path in PICTURES.iterdir()} == taken | made
