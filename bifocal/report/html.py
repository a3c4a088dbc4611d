"""Rendering of a report as one HTML file: style and images are embedded, there is no script."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bifocal.report.sections import Block, Chart, Page, Table

FOLDER = Path(__file__).parent


def render(page: Page) -> str:
    """Return ``page`` as HTML; the titles of its sections must differ."""
    anchors = [anchor(section.title) for section in page.sections]
    repeated = sorted({name for name in anchors if anchors.count(name) > 1})
    if repeated:
        raise ValueError(f"sections have the same anchor {', '.join(map(repr, repeated))}: give them other titles")
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"anchor": anchor, "rows": layout_rows, "markup": Markup}
    environment.tests |= {"block": lambda block, name: type(block).__name__ == name}
    style = Markup((FOLDER / "style.css").read_text())
    return environment.get_template("page.html.j2").render(page=page, style=style)


def anchor(title: str) -> str:
    """Return ``title`` as an HTML id."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def layout_rows(blocks: Sequence[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """Group successive narrow blocks (charts, tables that are not wide), which share rows of two columns."""
    for narrow, group in groupby(blocks, key=_is_narrow):
        yield narrow, list(group)


def _is_narrow(block: Block) -> bool:
    return isinstance(block, Chart) or (isinstance(block, Table) and not block.wide)
