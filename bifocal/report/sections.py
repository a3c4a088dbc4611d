"""Building blocks of a report, which hold only texts, data URIs and SVG, and their rendering as one
HTML file."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Badge:
    """Short colored label; ``good`` is True (green), False (red) or None (gray)."""

    text: str
    good: bool | None = None


@dataclass(frozen=True)
class Table:
    """Table with names in its first column, and the second one in bold.

    Attributes:
        text: all cells are texts, none is bold.
        bold: in place of the second column, the columns of each row that are bold.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Badge]]
    wide: bool = False
    text: bool = False
    bold: Sequence[Collection[int]] | None = None

    def is_bold(self, row: int, column: int) -> bool:
        """Whether a cell is bold; rows and columns count from 0."""
        if self.bold is not None:
            return column in self.bold[row]
        return column == 1 and not self.text


@dataclass(frozen=True)
class Chart:
    """Chart as SVG, see ``bifocal.report.charts``."""

    svg: str


@dataclass(frozen=True)
class Picture:
    """Image and heatmap (data URIs), with boxes (left, top, width, height) and a point in
    percent."""

    image: str
    heatmap: str = ""
    boxes: Sequence[tuple[float, float, float, float]] = ()
    point: tuple[float, float] | None = None


@dataclass(frozen=True)
class GalleryItem:
    """One picture, or two side by side, with a caption."""

    pictures: Sequence[Picture]
    caption: str
    badge: Badge | None = None


@dataclass(frozen=True)
class Gallery:
    """Grid of pictures."""

    items: Sequence[GalleryItem]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """Retrieved sentence or image (data URI) with its score."""

    correct: bool
    score: str
    text: str = ""
    image: str = ""


@dataclass(frozen=True)
class AnswerList:
    """Ranked answers under a short label."""

    answers: Sequence[Answer]
    label: str = ""


@dataclass(frozen=True)
class ReportQuery:
    """A query, a sentence or an image (data URI) or both, with one or more lists of answers."""

    results: Sequence[AnswerList]
    text: str = ""
    image: str = ""
    badge: Badge | None = None
    footnote: str = ""


@dataclass(frozen=True)
class QueryList:
    """Queries under a title; ``empty`` is shown if there are none."""

    title: str
    queries: Sequence[ReportQuery]
    empty: str = ""


@dataclass(frozen=True)
class Note:
    """Paragraph in a card."""

    text: str


@dataclass(frozen=True)
class Details:
    """Collapsed table of names and values."""

    title: str
    rows: Mapping[str, str]


Block = Table | Chart | Gallery | QueryList | Note | Details


@dataclass(frozen=True)
class Section:
    """Part of the page with an entry in its navigation bar."""

    title: str
    note: str = ""
    blocks: Sequence[Block] = ()


@dataclass(frozen=True)
class Tile:
    """Headline at the top of the page; ``percent`` in [0, 100] draws a bar."""

    label: str
    value: str
    note: str = ""
    percent: float | None = None


@dataclass(frozen=True)
class Page:
    """Content of one report; ``kind`` is written above the title."""

    title: str
    subtitle: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    footer: str = ""
    kind: str = "evaluation"


@dataclass(frozen=True)
class MetricRow:
    """One scalar metric for readers: a row of the model card, and a tile of the page if it is a
    headline.

    Attributes:
        name: dotted name under which the value is tracked, such as ``"caption_retrieval.R@1"``.
        value: in ``unit``.
        label: name for readers; ``name`` if it is empty.
        interval: low and high end of the 95 % interval.
        baselines: values of trivial methods by their name, in the same unit.
        unit: printed after the value.
        maximum: best possible value, for the bar of a tile.
        headline: whether the page shows the metric as a tile.
    """

    name: str
    value: float
    label: str = ""
    interval: tuple[float, float] | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    unit: str = "%"
    maximum: float = 100.0
    headline: bool = False

    @property
    def title(self) -> str:
        """Label, or the name if there is no label."""
        return self.label or self.name

    def format(self, value: float) -> str:
        """Return ``value`` as text: one decimal from 10 on and for percentages, else two."""
        return f"{value:.1f}" if self.unit == "%" or abs(value) >= 10 else f"{value:.2f}"

    def value_text(self) -> str:
        """Return the value with its unit."""
        return f"{self.format(self.value)} {self.unit}".strip()

    def interval_text(self) -> str:
        """Return the interval as ``"low to high"``; empty without an interval."""
        return " to ".join(self.format(end) for end in self.interval) if self.interval else ""

    def baselines_text(self) -> str:
        """Return the baselines as ``"name value, name value"``."""
        return ", ".join(f"{name} {self.format(value)}" for name, value in self.baselines.items())


def headline_tiles(rows: Sequence[MetricRow]) -> list[Tile]:
    """Return a tile for each headline among ``rows``."""
    tiles = []
    for row in rows:
        if row.headline:
            interval = f"95 %: {row.interval_text()}" if row.interval else ""
            note = "; ".join(filter(None, [interval, row.baselines_text()]))
            tiles.append(Tile(row.title, row.value_text(), note, 100 * row.value / row.maximum))
    return tiles


def metric_table(title: str, rows: Sequence[MetricRow]) -> Table:
    """Return a table with one row for each metric: value, 95 % interval and baselines."""
    cells = [
        (row.title, row.value_text(), row.interval_text(), row.baselines_text()) for row in rows
    ]
    used = [column for column in range(4) if column < 2 or any(row[column] for row in cells)]
    names = ("", "value", "95 %", "baselines")
    return Table(
        title,
        [names[column] for column in used],
        [[row[column] for column in used] for row in cells],
    )


def render(page: Page) -> str:
    """Return ``page`` as HTML; the titles of its sections must differ."""
    anchors = [anchor(section.title) for section in page.sections]
    repeated = sorted({name for name in anchors if anchors.count(name) > 1})
    if repeated:
        raise ValueError(
            f"sections have the same anchor {', '.join(map(repr, repeated))}: give them other "
            "titles"
        )
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
    """Group successive narrow blocks (charts, tables that are not wide), which share rows of two
    columns."""
    for narrow, group in groupby(blocks, key=_is_narrow):
        yield narrow, list(group)


def _is_narrow(block: Block) -> bool:
    return isinstance(block, Chart) or (isinstance(block, Table) and not block.wide)
