"""The page: what it shows, and how it becomes one HTML file that needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Tile:
    """A figure at the top of the page; ``scale`` is its place between 0 and 100, for the bar below it."""

    label: str
    value: str
    note: str
    scale: float | None = None


@dataclass(frozen=True)
class Figure:
    """A row of the table of figures: each cell is a text, empty where there is nothing to say."""

    name: str
    value: str
    interval: str
    reranked: str = ""
    chance: str = ""


@dataclass(frozen=True)
class Difference:
    """A figure against the champion's; ``sign`` is 1 or -1 if the interval leaves zero out on the good or bad side."""

    name: str
    here: str
    there: str
    difference: str
    interval: str
    sign: int


@dataclass(frozen=True)
class Result:
    """One answer to a query: a sentence or the data URI of an image."""

    correct: bool
    score: str
    text: str = ""
    image: str = ""


@dataclass(frozen=True)
class Query:
    """A query with its first answers; ``rank`` counts from 1."""

    rank: str
    results: Sequence[Result]
    text: str = ""
    image: str = ""
    expected: Sequence[str] = ()


@dataclass(frozen=True)
class Pointed:
    """A phrase located in an image: overlay and boxes in percent of the image's width and height.

    Attributes:
        image, heatmap: data URIs.
        boxes: left, top, width, height of each true box.
        spot: left, top of where the heatmap points.
    """

    phrase: str
    hit: bool
    image: str
    heatmap: str
    boxes: Sequence[tuple[float, float, float, float]]
    spot: tuple[float, float]


@dataclass(frozen=True)
class Table:
    """A small table: the first column is text, the others are figures."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class SimilarImages:
    """Two images that are similar, each with a heatmap of what made them so; data URIs."""

    images: tuple[str, str]
    heatmaps: tuple[str, str]
    caption: str


@dataclass(frozen=True)
class Modified:
    """A query image with and without a word, and the first results of both."""

    word: str
    image: str
    before: Sequence[Result]
    after: Sequence[Result]


@dataclass(frozen=True)
class Alike:
    """Two images in different splits that look the same."""

    first: str
    second: str
    caption: str


@dataclass(frozen=True)
class Page:
    """Everything that the page shows. A section whose list is empty says why in ``notes``, under its name.

    Attributes:
        charts: SVG; that of the name "semantic" stands beside the tables of ``meaning``.
    """

    title: str
    subtitle: str
    tiles: Sequence[Tile]
    figures: Mapping[str, Sequence[Figure]]
    champion: Sequence[Difference]
    charts: Mapping[str, str]
    best: Mapping[str, Sequence[Query]]
    worst: Mapping[str, Sequence[Query]]
    pointed: Sequence[Pointed]
    grounding: Sequence[Table]
    meaning: Sequence[Table]
    similar: Sequence[SimilarImages]
    modified: Sequence[Modified]
    shared: Sequence[tuple[str, int]]
    alike: Sequence[Alike]
    lineage: Mapping[str, Mapping[str, str]]
    notes: Mapping[str, str] = field(default_factory=dict)


def render(page: Page) -> str:
    """The page as HTML; style and pictures are inside, and there is no script."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup((FOLDER / "style.css").read_text())
    charts = {name: Markup(chart) for name, chart in page.charts.items()}
    return environment.get_template("page.html.j2").render(page=page, charts=charts, style=style)
