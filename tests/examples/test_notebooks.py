"""Notebooks: their code runs at small size, and their stored outputs belong to their code."""

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode

from bifocal import registry
from examples.execute import FOLDER, NAMES, execute, read, source_hash, with_parameters

MAX_BYTES = 300_000
OF_THIS_MACHINE = re.compile(r"(?<![\w.])/(?:home|root|tmp|usr|work|opt|private|Users)/[^\s\"']*")
RUN = "Run: python examples/execute.py"


EXECUTED = "comparing_models"


def small(name: str, home: Path) -> NotebookNode:
    return with_parameters(read(name), {"images": 24, "home": str(home)})


@pytest.mark.parametrize("name", sorted({*NAMES} - {EXECUTED}))
def test_code_runs(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        registry, "REGISTERED", {}
    )  # a notebook registers a loss, and other tests list the losses
    cells = [cell.source for cell in small(name, home).cells if cell.cell_type == "code"]
    variables: dict[str, object] = {"__name__": "notebook"}
    for source in cells:
        exec(compile(source, f"{name}.ipynb", "exec"), variables)


def test_execution_stores_outputs_and_their_code(home: Path) -> None:
    notebook = small(EXECUTED, home)
    execute(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert all(output.get("name") != "stderr" for cell in code for output in cell.outputs)
    assert notebook.metadata["bifocal"]["sources"] == source_hash(notebook)
    assert source_hash(notebook) != read(EXECUTED).metadata["bifocal"]["sources"]


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs_belong_to_the_stored_code(name: str) -> None:
    notebook = read(name)
    assert notebook.metadata["bifocal"]["sources"] == source_hash(notebook), RUN
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), RUN
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs, RUN
    assert not any(output.output_type == "error" for output in outputs)
    found = [text for text in map(str, outputs) if OF_THIS_MACHINE.search(text)]
    assert not found, f"a path of this machine: {found[0][:300]}"
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MAX_BYTES
