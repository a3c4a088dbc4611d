"""The figures of a run, for people: what ``dvc metrics show`` prints as one row of sixty columns."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

DIRECTIONS = {"caption_retrieval": "caption retrieval", "image_retrieval": "image retrieval"}


def figures_table(home: Path) -> RenderableType:
    """The table of ``home/artifacts/metrics/metrics.json``, and where the report lies.

    Raises:
        FileNotFoundError: that run has not been evaluated.
    """
    file = home / "artifacts" / "metrics" / "metrics.json"
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there: run 'make repro' first")
    figures = json.loads(file.read_text())
    names = sorted(figures["caption_retrieval"], key=lambda name: (len(name), name))
    table = Table(title=f"{figures['images']} images, {figures['captions']} captions; R@K in percent, ranks from 1")
    table.add_column()
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for direction, meaning in DIRECTIONS.items():
        for label, part in (("", figures), (", re-ranked", figures["reranked"]), (", chance", figures["chance"])):
            table.add_row(meaning + label, *(f"{part[direction][name]:.1f}" for name in names))
        table.add_section()
    report = home / "artifacts" / "report" / "index.html"
    return Group(table, *_pointing(figures), f"look at {report.as_posix()}")


def _pointing(figures: Mapping[str, Any]) -> Iterator[str]:
    if "pointing" in figures:
        found = figures["pointing"]
        yield (
            f"pointing: {found['accuracy']:.1f} % of {found['phrases']} phrases ({found['low']:.1f} to "
            f"{found['high']:.1f}); the image's centre {found['centre']:.1f} %, random {found['random']:.1f} %"
        )
