"""How figures look on the page: tiles, tables, charts."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.report.charts import bar_chart, line_chart
from bifocal.report.page import Figure, Tile
from components.evaluate.measure import Measured

DIRECTIONS = {
    "caption_retrieval": "An image looks for its captions",
    "image_retrieval": "A sentence looks for its image",
}


def tiles(figures: Mapping[str, Any]) -> list[Tile]:
    """The figures at the top, of what ``metrics.json`` holds."""
    total, intervals = figures["recall_sum"], figures["intervals"]
    most = 100.0 * sum(name.startswith("R@") for direction in DIRECTIONS for name in figures[direction])
    spread = intervals["recall_sum"]["total"]
    tiles = [
        Tile(
            "Recall sum", f"{total:.1f}", f"of {most:.0f}; 95 %: {spread['low']:.1f} to {spread['high']:.1f}",
            100 * total / most,
        )
    ]  # fmt: skip
    for direction, label in (("caption_retrieval", "Caption retrieval"), ("image_retrieval", "Image retrieval")):
        name = next(name for name in figures[direction] if name.startswith("R@"))
        value, low_high = figures[direction][name], intervals[direction][name]
        note = f"{low_high['low']:.1f} to {low_high['high']:.1f}; chance {figures['chance'][direction][name]:.1f}"
        tiles.append(Tile(f"{label}, {name}", f"{value:.1f} %", note, value))
    if "pointing" in figures:
        found = figures["pointing"]
        note = f"image centre {found['centre']:.1f}, random {found['random']:.1f}"
        tiles.append(Tile("Pointing", f"{found['accuracy']:.1f} %", note, found["accuracy"]))
    return tiles


def rows_of(figures: Mapping[str, Any], direction: str) -> list[Figure]:
    """A table of one direction."""
    rows = []
    for name, value in figures[direction].items():
        digits = 1 if name.startswith("R@") or value >= 10 else 2
        interval = figures["intervals"][direction][name]
        rows.append(
            Figure(
                name.replace("_", " "),
                f"{value:.{digits}f}",
                f"{interval['low']:.{digits}f} – {interval['high']:.{digits}f}",
                f"{figures['reranked'][direction][name]:.{digits}f}",
                f"{figures['chance'][direction][name]:.1f}",
            )
        )
    return rows


def charts(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """SVG, of what ``recall_curves.csv``, ``rank_histogram.csv`` and ``semantic_curves.csv`` hold."""
    curves, histogram, meaning = (tables[name] for name in ("recall_curves", "rank_histogram", "semantic_curves"))
    names = {
        "caption_retrieval": "captions of an image",
        "image_retrieval": "image of a caption",
        "caption_retrieval_reranked": "captions, re-ranked",
        "image_retrieval_reranked": "image, re-ranked",
    }
    lines = {label: curves[name].tolist() for name, label in names.items()}
    bars = {label: histogram[name].tolist() for name, label in list(names.items())[:2]}
    drawn = {
        "recall": line_chart(lines, curves["K"].tolist(), "K", "R@K, percent"),
        "ranks": bar_chart(
            bars, histogram["rank"].tolist(), "rank of the first right answer", "percent of the queries"
        ),
    }
    if len(meaning):
        ranked = {f"{name}@R": meaning[name].tolist() for name in ("NDCG", "PCC")}
        drawn["semantic"] = line_chart(ranked, meaning["R"].tolist(), "R, results", "percent")
    return drawn


def rank_shares(ranks: NDArray[np.float64], edges: Sequence[int]) -> list[float]:
    """Percent of the ranks (from 0) in [edge, next edge), the last without an end."""
    counts = np.histogram(ranks, [*edges, np.inf])[0]
    return [float(100 * count / len(ranks)) for count in counts]


def rank_table(measured: Measured, edges: Sequence[int]) -> pd.DataFrame:
    """The histogram of the ranks: columns ``rank`` (from 1), and percent of either direction."""
    labels = [f"{a + 1}" if b == a + 1 else f"{a + 1}–{b}" for a, b in pairwise(edges)] + [f"over {edges[-1]}"]
    shares = [rank_shares(ranks.expected().numpy(), edges) for ranks in measured.all_ranks()]
    return pd.DataFrame({"rank": labels, "caption_retrieval": shares[0], "image_retrieval": shares[1]})
