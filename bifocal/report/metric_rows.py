"""Scalar metrics for readers: rows of a table or of the model card, and tiles of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bifocal.report.sections import Table, Tile


@dataclass(frozen=True)
class MetricRow:
    """One scalar metric for readers: a row of the model card, and a tile of the page if it is a headline.

    Attributes:
        name: dotted name under which the value is tracked, such as ``"caption_retrieval.R@1"``.
        value: in ``unit``.
        label: name for readers; ``name`` if it is empty.
        interval: low and high end of the 95 % interval.
        baselines: values of trivial methods by their name, in the same unit.
        unit: printed after the value.
        maximum: best possible value, for the bar of a tile; None draws no bar.
        headline: whether the page shows the metric as a tile.
    """

    name: str
    value: float
    label: str = ""
    interval: tuple[float, float] | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    maximum: float | None = None
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
            tiles.append(
                Tile(row.title, row.value_text(), note, 100 * row.value / row.maximum if row.maximum else None)
            )
    return tiles


def metric_table(title: str, rows: Sequence[MetricRow]) -> Table:
    """Return a table with one row for each metric: value, 95 % interval and baselines."""
    cells = [(row.title, row.value_text(), row.interval_text(), row.baselines_text()) for row in rows]
    used = [column for column in range(4) if column < 2 or any(row[column] for row in cells)]
    names = ("", "value", "95 %", "baselines")
    return Table(title, [names[column] for column in used], [[row[column] for column in used] for row in cells])
