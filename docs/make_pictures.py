"""Make the pictures of the documentation in docs/pictures.

    python -m docs.make_pictures                 # drawings and plots
    python -m docs.make_pictures --run FOLDER    # also the report, of 'make repro' in FOLDER

``tests/docs/test_pictures.py`` draws the drawings again, and compares the inputs of the other
pictures, which are in ``inputs.json``: the code that draws them and the parameters of the run.
"""

import argparse
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from docs.drawing.models import MODELS
from docs.drawing.pipeline import pipeline_drawing
from docs.drawing.report import first_page
from docs.drawing.results import result_drawings
from docs.drawing.rooms import rooms_drawing

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
INPUTS = PICTURES / "inputs.json"
REPORT = (
    "bifocal/evaluation/base.py",
    "bifocal/report/charts.py",
    "bifocal/report/page.html.j2",
    "bifocal/report/sections.py",
    "bifocal/report/style.css",
    "params.yaml",
)
SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "report.png": ("docs/drawing/report.py", *REPORT),
        "report.html": REPORT,
    }
)
"""Files that a picture of a run depends on, beside the run."""
SECTIONS = (
    "seed",
    "prepare_dataset",
    "extract_features",
    "vectorize_captions",
    "pretrain_sorter",
    "train_embedding",
    "evaluate",
)
"""Sections of params.yaml behind the report: no other stage runs before it."""
SCREENSHOTS = tuple(
    f"page_{name}.jpg" for name in ("gallery", "phone", "refusal", "results", "where")
)
"""Pictures of the search page: see ``docs/make_screenshots.py``."""
PLOTS = ("year.png",)
"""Plots of benchmarks: see docs/monitoring.md."""


def drawings() -> dict[str, str]:
    """Return the SVG of each drawing by its file name."""
    named = {"pipeline": pipeline_drawing(), "rooms": rooms_drawing()} | MODELS | result_drawings()
    return {f"{name}.svg": text for name, text in named.items()}


def inputs(picture: str) -> dict[str, str]:
    """Return the SHA-256 of the picture's sources together, and of the picture."""
    sources = hashlib.sha256()
    for source in SOURCES[picture]:
        content = (ROOT / source).read_bytes()
        if source == "params.yaml":
            values = yaml.safe_load(content)
            content = json.dumps({section: values[section] for section in SECTIONS}).encode()
        sources.update(f"{source} {hashlib.sha256(content).hexdigest()}\n".encode())
    picture_hash = hashlib.sha256((PICTURES / picture).read_bytes()).hexdigest()
    return {"sources": sources.hexdigest(), "picture": picture_hash}


def write_pictures_of(run: Path) -> None:
    """Write the report of a run, and record its inputs."""
    report = run / "artifacts" / "report" / "index.html"
    first_page(report).save(PICTURES / "report.png", optimize=True)
    shutil.copyfile(report, PICTURES / "report.html")
    INPUTS.write_text(
        json.dumps({picture: inputs(picture) for picture in SOURCES}, indent=1) + "\n"
    )


def main() -> None:
    """Write the drawings, and with ``--run`` the other pictures."""
    arguments = argparse.ArgumentParser(
        prog="python -m docs.make_pictures", description=__doc__.partition("\n\n")[0]
    )
    arguments.add_argument(
        "--run", type=Path, help="folder of 'make repro'; its report has 2 queries per kind"
    )
    run = arguments.parse_args().run
    for name, text in drawings().items():
        (PICTURES / name).write_text(text)
    if run is not None:
        write_pictures_of(run)


if __name__ == "__main__":
    main()
