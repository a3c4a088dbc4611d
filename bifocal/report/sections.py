"""Building blocks of a report, which hold only texts, data URIs and SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Badge:
    """Short colored label; ``good`` is True (green), False (red) or None (gray)."""

    text: str
    good: bool | None = None


@dataclass(frozen=True)
class Table:
    """Table with names in its first column and an emphasized second one, unless ``text`` marks all cells as texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Badge]]
    wide: bool = False
    text: bool = False


@dataclass(frozen=True)
class Chart:
    """Chart as SVG, see ``bifocal.report.charts``."""

    svg: str


@dataclass(frozen=True)
class Picture:
    """Image and heatmap (data URIs), with boxes (left, top, width, height) and a point in percent."""

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
