"""Figures of thesis chapter 5 about sorters, drawn on Axes of the caller."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Generator, nn

from bifocal.sorters.ranks import exact_ranks


def sorter_figures(
    sorters: Mapping[str, nn.Module],
    errors: Mapping[str, float],
    depths: Mapping[int, Sequence[float]],
    length: int,
    seed: int,
) -> dict[str, Figure]:
    """Return the figures of a trained sorter by their file names; ``depths`` may be empty, see
    ``plot_depths``."""
    figures = {"l1.png": Figure(figsize=(7, 2.5), layout="constrained")}
    plot_errors(figures["l1.png"].add_subplot(), errors)
    figures["behavior.png"] = Figure(figsize=(6, 5), layout="constrained")
    plot_behavior(figures["behavior.png"].add_subplot(), sorters, length, seed)
    if depths:
        figures["depths.png"] = Figure(figsize=(6, 4.5), layout="constrained")
        plot_depths(figures["depths.png"].add_subplot(), depths)
    return figures


def plot_errors(ax: Axes, errors: Mapping[str, float]) -> None:
    """Draw table 5.1 as bars on ``ax``: L1 error of ranks divided by n, by the name of the
    sorter."""
    bars = ax.barh(list(errors), list(errors.values()))
    ax.bar_label(bars, fmt="%.4f", padding=3)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set(xlabel="L1 of ranks divided by n, held-out vectors")


def plot_depths(ax: Axes, errors: Mapping[int, Sequence[float]]) -> None:
    """Draw figure 5.5 on ``ax``: error of convolutional sorters per epoch, by their number of
    blocks."""
    for blocks, values in errors.items():
        ax.plot(range(1, len(values) + 1), values, label=f"{blocks} block{'s' * (blocks > 1)}")
    ax.set(xlabel="epoch", ylabel="L1 of ranks divided by n, held-out vectors", yscale="log")
    ax.legend(frameon=False)


def plot_behavior(ax: Axes, sorters: Mapping[str, nn.Module], length: int, seed: int) -> None:
    """Draw figure 5.6: the rank of the first of ``length`` uniform scores as it moves from -1 to
    1."""
    scores = torch.rand(1, length, generator=Generator().manual_seed(seed)) * 2 - 1
    value = torch.linspace(-1, 1, 2001)
    scores = torch.cat([value[:, None], scores[:, 1:].expand(len(value), -1)], dim=1)
    ax.plot(value, exact_ranks(scores)[:, 0], label="true rank", color="black", linewidth=1)
    with torch.no_grad():
        for name, sorter in sorters.items():
            ax.plot(value, sorter(scores)[:, 0], label=name)
    ax.set(xlabel="first score", ylabel="its rank, 0 = best", xlim=(-1, 1))
    ax.legend(frameon=False)
