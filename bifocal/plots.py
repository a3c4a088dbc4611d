"""Figures, each drawn on the Axes that the caller gives and owns."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes


def plot_recall(ax: Axes, recall: Mapping[str, Sequence[float]], ks: Sequence[int]) -> None:
    """Draw R@K, in percent, against K on ``ax``, one line per name."""
    for name, values in recall.items():
        ax.plot(ks, values, label=name, linestyle="--" if "reranked" in name else "-")
    ax.set(xlabel="K", ylabel="R@K, percent", xlim=(min(ks), max(ks)), ylim=(0, 100))
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
