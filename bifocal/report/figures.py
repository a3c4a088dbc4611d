"""Matplotlib figures that are saved as PNG and logged with the run."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS, CELL_INCHES = 4, 3.0
CHART_INCHES = (7.0, 4.5)


def chart_figure(draw: Callable[["Axes"], None]) -> "Figure":
    """Return a figure of one chart, drawn by ``draw``."""
    from matplotlib.figure import Figure  # imported here: it takes half a second, and few processes draw

    figure = Figure(figsize=CHART_INCHES, layout="constrained")
    draw(figure.add_subplot())
    return figure


def grid_figure(cells: Sequence[tuple[str, Callable[["Axes"], None]]]) -> "Figure":
    """Return a figure of small plots in rows of four, each with a title and the function that draws it."""
    from matplotlib.figure import Figure  # imported here: it takes half a second, and few processes draw

    rows = -(-len(cells) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * CELL_INCHES, rows * CELL_INCHES), layout="constrained")
    for number, (title, draw) in enumerate(cells, start=1):
        ax = figure.add_subplot(rows, COLUMNS, number)
        draw(ax)
        ax.set_title(title, fontsize=8, wrap=True)
    return figure
