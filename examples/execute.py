"""Execute the notebooks of this folder, and store their outputs in them.

    python examples/execute.py              # all of them
    python examples/execute.py pointing     # one

Run it after each change of a notebook: a test compares the stored outputs with the code that they
were made from. The cell with the tag "parameters" has the size of the data.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import click
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
SECONDS_PER_CELL = 1200
MAX_WIDTH, COLORS = 840, 64


def read(name: str) -> NotebookNode:
    """Return a notebook of this folder."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def with_parameters(notebook: NotebookNode, parameters: Mapping[str, object]) -> NotebookNode:
    """Return the notebook with other values in the cell that has the tag "parameters"."""
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    cell.source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    return notebook


def source_hash(notebook: NotebookNode) -> str:
    """Return the SHA-256 of all cells of code."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def execute(notebook: NotebookNode) -> None:
    """Execute all cells in a kernel of its own, in the root of the repository; keep neither times
    nor progress."""
    NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER.parent)}},
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                shrink_pictures(output)
    notebook.metadata["bifocal"] = {"sources": source_hash(notebook)}


def shrink_pictures(output: NotebookNode) -> None:
    """Keep only a picture's PNG, with at most ``MAX_WIDTH`` pixels per row and ``COLORS``
    colors."""
    data = output.get("data", {})
    if "image/png" not in data:
        return
    data.pop("image/jpeg", None)
    picture = Image.open(BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
    picture.thumbnail((MAX_WIDTH, MAX_WIDTH))
    buffer = BytesIO()
    picture.quantize(COLORS).save(buffer, "PNG", optimize=True)
    data["image/png"] = base64.b64encode(buffer.getvalue()).decode()


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
def main(names: Sequence[str]) -> None:
    """Execute notebooks, all by default, and write them with their outputs."""
    for name in names or NAMES:
        notebook = read(name)
        execute(notebook)
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")
        print(f"{name}: {(FOLDER / f'{name}.ipynb').stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
