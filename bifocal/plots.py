"""Figures, each drawn on the Axes that the caller gives and owns."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes


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
