"""Comparison of two models by the ranks of their queries: differences with intervals, as a table and a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.evaluation.rank_tables import ZERO_SHOT
from bifocal.metrics.bootstrap import bootstrap_difference, percentile_interval
from bifocal.report.sections import Badge, Page, Section, Table, render

RETRIEVAL = ("caption_retrieval", "image_retrieval")
KEYS = ["direction", "query", "image_id", "content"]
"""Columns that identify a query: equal ids with other contents are other queries."""
COLUMNS = ("", "this run", "version", "difference", "95 %", "")
VERDICTS = {1: Badge("better", good=True), -1: Badge("worse", good=False), 0: Badge("no clear difference")}


@dataclass(frozen=True)
class PairedScores:
    """Scores of two models on the same queries, and each query's image; all (Q,)."""

    current: NDArray[np.float64]
    reference: NDArray[np.float64]
    image_ids: Sequence[str]


@dataclass(frozen=True)
class Difference:
    """Metric of two models and the interval of its difference, current minus reference."""

    name: str
    current: float
    reference: float
    interval: tuple[float, float]

    @property
    def gain(self) -> float:
        """Difference, current minus reference."""
        return self.current - self.reference

    @property
    def sign(self) -> int:
        """1 or -1 if the whole interval is above or below 0, else 0."""
        low, high = self.interval
        return 1 if low > 0 else -1 if high < 0 else 0


def image_totals(scores: Sequence[PairedScores]) -> tuple[Tensor, Tensor, Tensor]:
    """Return both models' totals and the number of queries, per image and metric; all (G, S)."""
    image_ids = sorted({image for metric in scores for image in metric.image_ids})
    row_of_image = {image: row for row, image in enumerate(image_ids)}
    current, reference, counts = torch.zeros(3, len(image_ids), len(scores), dtype=torch.float64)
    for column, metric in enumerate(scores):
        rows = torch.tensor([row_of_image[image] for image in metric.image_ids])
        current[:, column].index_add_(0, rows, torch.from_numpy(metric.current))
        reference[:, column].index_add_(0, rows, torch.from_numpy(metric.reference))
        counts[:, column] = rows.bincount(minlength=len(image_ids))
    return current, reference, counts


def join_queries(current: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Return the queries that both rank tables hold, with the columns ``rank_current`` and ``rank_reference``."""
    if not ({"protocol"} <= set(current.columns) & set(reference.columns)):
        raise ValueError(
            "a table of ranks has no column 'protocol': version 0.2 or earlier wrote it; evaluate the model again"
        )
    pairs = current.merge(reference, on=KEYS, suffixes=("_current", "_reference"), validate="one_to_one")
    unlike = pairs[pairs["protocol_current"] != pairs["protocol_reference"]]
    if len(unlike):
        raise ValueError(
            f"{unlike['direction'].iloc[0]}: {len(unlike)} of {len(pairs)} common queries were ranked under different "
            "protocols (other candidates or true boxes), so their ranks are not comparable: evaluate both models on "
            "the same split with the same protocol"
        )
    return pairs


def compare_ranks(
    current: pd.DataFrame, reference: pd.DataFrame, ks: Iterable[int], *, resamples: int, seed: int
) -> list[Difference]:
    """Compare two models by direction, R@K of retrieval and accuracy otherwise, in percent, on their common queries."""
    differences = []
    for direction, queries in join_queries(current, reference).groupby("direction", sort=True):
        if str(direction).startswith(ZERO_SHOT):
            continue
        retrieval = direction in RETRIEVAL
        for k in ks if retrieval else [1]:
            name = f"{direction}.R@{k}" if retrieval else f"{direction}.accuracy"
            scores = hits(queries, k)
            interval = percentile_interval(bootstrap_difference(*image_totals([scores]), resamples, seed), 0.95)
            differences.append(Difference(name, float(scores.current.mean()), float(scores.reference.mean()), interval))
    return differences


def hits(queries: pd.DataFrame, k: int) -> PairedScores:
    """Return 100 for each query whose rank is among the first ``k``, else 0."""
    current, reference = ((queries[f"rank_{model}"] < k).to_numpy() for model in ("current", "reference"))
    return PairedScores(np.where(current, 100.0, 0.0), np.where(reference, 100.0, 0.0), list(queries["image_id"]))


def difference_table(differences: Sequence[Difference]) -> Table:
    """Return the differences as a table of the report."""
    rows: list[list[str | Badge]] = [
        [
            row.name.replace("_", " "),
            f"{row.current:.1f}",
            f"{row.reference:.1f}",
            f"{row.gain:+.1f}",
            f"{row.interval[0]:+.1f} to {row.interval[1]:+.1f}",
            VERDICTS[row.sign],
        ]
        for row in differences
    ]
    return Table("", COLUMNS, rows, wide=True)


def comparison_page(name: str, table: Table) -> str:
    """Return an HTML page with the table of a comparison with the version ``name``."""
    note = "Percentage points, on the queries that both answered, with intervals of a paired bootstrap over images."
    page = Page(f"This run and {name}", "", [], [Section("Comparison", note, [table])])
    return render(page)
