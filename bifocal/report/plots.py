"""Matplotlib plots on Axes of the caller, and figures of them, which are saved as PNG and logged with the run."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

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


def plot_lines(
    ax: "Axes",
    lines: Mapping[str, Sequence[float]],
    xs: Sequence[float],
    x_label: str,
    y_label: str,
    dashed: Collection[str] = (),
) -> None:
    """Draw lines against ``xs`` on ``ax``, with a legend."""
    for name, values in lines.items():
        # Markers make few points visible, and hide the line between many.
        marker = "o" if len(xs) < 10 else None
        ax.plot(xs, values, label=name, linestyle="--" if name in dashed else "-", marker=marker)
    ax.set(xlabel=x_label, ylabel=y_label)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)


def plot_bars(
    ax: "Axes", bars: Mapping[str, Sequence[float]], labels: Sequence[str], x_label: str, y_label: str
) -> None:
    """Draw groups of bars on ``ax``, one group for each of ``labels``, with a legend."""
    width = 0.8 / len(bars)
    for number, (name, values) in enumerate(bars.items()):
        offset = (number - (len(bars) - 1) / 2) * width
        ax.bar([column + offset for column in range(len(labels))], values, width, label=name)
    ax.set_xticks(range(len(labels)), labels)
    ax.set(xlabel=x_label, ylabel=y_label)
    ax.grid(alpha=0.3, axis="y")
    ax.legend(frameon=False)


def plot_heatmap(
    ax: "Axes",
    image: Image.Image,
    heatmap: NDArray[np.floating],
    boxes: NDArray[np.floating],
    point: NDArray[np.floating] | None = None,
) -> None:
    """Draw an image with a heatmap, -inf without a score, true boxes (n, 4) and the predicted point, in percent."""
    from matplotlib.patches import Rectangle  # imported here: it takes half a second, and few processes draw

    width, height = image.size
    scale = np.array([width, height]) / 100
    extent = (0, width, height, 0)
    ax.imshow(np.asarray(image), extent=extent)
    ax.imshow(np.where(np.isfinite(heatmap), heatmap, np.nan), extent=extent, cmap="inferno", alpha=0.45)
    for x0, y0, x1, y1 in boxes * np.tile(scale, 2):
        ax.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor="white", linewidth=1.5))
    if point is not None:
        ax.plot(*(point * scale), "o", color="#2f7bff", markeredgecolor="white", markersize=7)
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
