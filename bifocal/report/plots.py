"""Figures, each drawn on the Axes that the caller gives and owns."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image


def plot_recall(ax: Axes, recall: Mapping[str, Sequence[float]], ks: Sequence[int]) -> None:
    """Draw R@K, in percent, against K on ``ax``, one line per name."""
    for name, values in recall.items():
        ax.plot(ks, values, label=name, linestyle="--" if "reranked" in name else "-")
    ax.set(xlabel="K", ylabel="R@K, percent", xlim=(min(ks), max(ks)), ylim=(0, 100))
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)


def plot_rank_histogram(ax: Axes, histogram: pd.DataFrame) -> None:
    """Draw on ``ax`` what share of the queries, in percent, has its first right answer where.

    Args:
        histogram: column ``rank``, names of the bins, and one column for each direction.
    """
    directions = [name for name in histogram.columns if name != "rank"]
    width = 0.8 / len(directions)
    for number, name in enumerate(directions):
        places = [place + (number - (len(directions) - 1) / 2) * width for place in range(len(histogram))]
        ax.bar(places, histogram[name], width, label=name.replace("_", " "))
    ax.set_xticks(range(len(histogram)), histogram["rank"])
    ax.set(xlabel="rank of the first right answer", ylabel="percent of the queries")
    ax.grid(alpha=0.3, axis="y")
    ax.legend(frameon=False)


def plot_semantic(ax: Axes, curves: pd.DataFrame) -> None:
    """Draw NDCG@R and PCC@R, in percent, against R on ``ax``: columns ``R``, ``NDCG`` and ``PCC``."""
    for name in ("NDCG", "PCC"):
        ax.plot(curves["R"], curves[name], label=f"{name}@R", marker="o")
    ax.set(xlabel="R", ylabel="percent")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)


def plot_heatmap(
    ax: Axes,
    image: Image.Image,
    heatmap: NDArray[np.floating],
    boxes: NDArray[np.floating],
    spot: NDArray[np.floating] | None = None,
) -> None:
    """Draw an image, a heatmap over it, its true boxes in white, and where the heatmap points.

    Args:
        heatmap: (h, w), -inf where nothing is known.
        boxes: (n, 4), x0 y0 x1 y1 in percent of the image's width and height.
        spot: (2,), x y likewise.
    """
    width, height = image.size
    scale = np.array([width, height]) / 100
    extent = (0, width, height, 0)
    ax.imshow(np.asarray(image), extent=extent)
    ax.imshow(np.where(np.isfinite(heatmap), heatmap, np.nan), extent=extent, cmap="inferno", alpha=0.45)
    for x0, y0, x1, y1 in boxes * np.tile(scale, 2):
        ax.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor="white", linewidth=1.5))
    if spot is not None:
        ax.plot(*(spot * scale), "o", color="#2f7bff", markeredgecolor="white", markersize=7)
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
