"""The figures that are kept as PNG beside the tables, and logged."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from bifocal.datasets import Dataset
from bifocal.report.plots import plot_heatmap, plot_rank_histogram, plot_recall, plot_semantic
from components.evaluate.heatmaps import Heated, Similar
from components.evaluate.pictures import Thumbnails

COLUMNS, INCHES = 4, 3.0


def draw(
    tables: Mapping[str, pd.DataFrame], pointed: Sequence[Heated], similar: Sequence[Similar], split: Dataset
) -> dict[str, Figure]:
    """The figures by their names; of heatmaps and semantic curves only where there are some."""
    drawn = {name: Figure(figsize=(7, 4.5), layout="constrained") for name in ("recall_curves", "rank_histogram")}
    curves = tables["recall_curves"]
    lines = {name.replace("_", " "): curves[name].tolist() for name in curves.columns[1:]}
    plot_recall(drawn["recall_curves"].add_subplot(), lines, curves["K"].tolist())
    plot_rank_histogram(drawn["rank_histogram"].add_subplot(), tables["rank_histogram"])
    if len(tables["semantic_curves"]):
        drawn["semantic_curves"] = Figure(figsize=(7, 4.5), layout="constrained")
        plot_semantic(drawn["semantic_curves"].add_subplot(), tables["semantic_curves"])
    if pointed:
        titles = [f"{one.text} ({'hit' if one.hit else 'miss'})" for one in pointed]
        drawn["pointing"] = _heatmaps(pointed, titles, split)
    if similar:
        both = [image for pair in similar for image in (pair.first, pair.second)]
        titles = [title for pair in similar for title in (pair.first.image_id, f"most like it: {pair.cosine:.2f}")]
        drawn["similar_images"] = _heatmaps(both, titles, split)
    return drawn


def _heatmaps(shown: Sequence[Heated], titles: Sequence[str], split: Dataset) -> Figure:
    thumbnails = Thumbnails(split)
    rows = -(-len(shown) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * INCHES, rows * INCHES), layout="constrained")
    for number, (one, title) in enumerate(zip(shown, titles, strict=True)):
        ax = figure.add_subplot(rows, COLUMNS, number + 1)
        image = thumbnails.open(one.image_id).convert("RGB")
        image.thumbnail((360, 360))
        plot_heatmap(ax, image, one.heatmap, one.boxes, one.spot)
        ax.set_title(title, fontsize=8, wrap=True)
    return figure
