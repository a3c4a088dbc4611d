"""Comparison of two models by the ranks of their queries: differences with intervals, as a table
and a page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bifocal.evaluation.rank_tables import ZERO_SHOT
from bifocal.metrics.bootstrap import bootstrap_means, percentile_interval
from bifocal.report.charts import interval_chart
from bifocal.report.sections import Badge, Chart, Note, Section, Table

RETRIEVAL = ("caption_retrieval", "image_retrieval")
KEYS = ["direction", "query", "image_id", "content"]
"""Columns that identify a query: equal ids with other contents are other queries."""
RECALL_SUM = "recall_sum"
"""Name of the sum of R@K of both directions, which gives the verdict."""
VERDICTS = {1: Badge("better", good=True), -1: Badge("worse", good=False), 0: Badge("unclear")}


Interval = tuple[float, float]


class Sampled(NamedTuple):
    """A metric of T trainings: measured (T,), and for R resamples of the images (R, T)."""

    measured: Tensor
    resampled: Tensor


@dataclass(frozen=True)
class Difference:
    """Metric of two models with 95 % intervals, and the interval of its difference, current minus
    reference.

    Attributes:
        values: of each training of the current model, and of the reference.
        image_interval: of the difference, if only the images varied.
        seed_interval: of the difference, if only the seeds varied; None with one training of each.
    """

    name: str
    current: float
    reference: float
    interval: Interval
    current_interval: Interval
    reference_interval: Interval
    values: tuple[Sequence[float], Sequence[float]]
    image_interval: Interval
    seed_interval: Interval | None

    @property
    def gain(self) -> float:
        """Difference, current minus reference."""
        return self.current - self.reference

    @property
    def sign(self) -> int:
        """1 or -1 if the whole interval is above or below 0, else 0."""
        low, high = self.interval
        return 1 if low > 0 else -1 if high < 0 else 0

    def __str__(self) -> str:
        return (
            f"{metric_label(self.name)} {self.gain:+.1f} ({self.interval[0]:+.1f} to "
            f"{self.interval[1]:+.1f})"
        )


@dataclass(frozen=True)
class Comparison:
    """Differences between two models, ``current`` minus ``reference``, each trained with a number
    of seeds."""

    current: str
    reference: str
    differences: Sequence[Difference] = field(repr=False)
    images: int
    queries: tuple[int, int]  # in all tables, and in any table
    seeds: tuple[int, int] = (1, 1)

    def verdict(self) -> str:
        """Return the result in words: the recall sum decides, or the first metric without
        retrieval."""
        decisive = next(
            (row for row in self.differences if row.name == RECALL_SUM), self.differences[0]
        )
        if decisive.sign:
            others = [
                str(row)
                for row in self.differences
                if row.name.endswith("R@1") and row.sign == decisive.sign
            ]
            more = "more" if decisive.sign > 0 else "less"
            return (
                f"{self.current} finds {more} than {self.reference}: "
                f"{', '.join([str(decisive), *others])}"
            )
        seeds = " and ".join(map(str, dict.fromkeys(self.seeds))) + (
            " seed" if self.seeds == (1, 1) else " seeds"
        )
        hidden = max(abs(end - decisive.gain) for end in decisive.interval)
        return (
            f"no difference between {self.current} and {self.reference} can be seen with "
            f"{seeds} and {self.images:,} images: {decisive}; one below {hidden:.1f} would "
            "stay unseen"
        )

    def table(self) -> Table:
        """Return the differences as a table; a value is bold if the interval excludes 0."""
        rows: list[list[str | Badge]] = [
            [
                metric_label(row.name),
                f"{row.reference:.1f} ({row.reference_interval[0]:.1f} to "
                f"{row.reference_interval[1]:.1f})",
                f"{row.current:.1f} ({row.current_interval[0]:.1f} to "
                f"{row.current_interval[1]:.1f})",
                f"{row.gain:+.1f} ({row.interval[0]:+.1f} to {row.interval[1]:+.1f})",
                VERDICTS[row.sign],
            ]
            for row in self.differences
        ]
        bold = [{-1: (1,), 0: (), 1: (2,)}[row.sign] for row in self.differences]
        columns = ("", self.reference, self.current, "difference", "")
        return Table("", columns, rows, wide=True, bold=bold)

    def chart(self) -> str:
        """Return an SVG chart of the differences but the recall sum."""
        rows = {
            metric_label(row.name): (row.gain, *row.interval)
            for row in self.differences
            if row.name != RECALL_SUM
        }
        return interval_chart(rows, f"{self.current} minus {self.reference}, percentage points")

    def section(self) -> Section:
        """Return verdict, chart and table of the report."""
        common = (
            f"{self.queries[0]:,} common queries, of {self.queries[1]:,}, of {self.images:,} "
            "images."
        )
        note = (
            f"{common} Percent, with 95 % intervals: bootstrap over images, Student's t over seeds."
        )
        return Section(
            f"{self.current} and {self.reference}",
            note,
            [Note(self.verdict()), Chart(self.chart()), self.table()],
        )


def metric_label(name: str) -> str:
    """Return the name of a metric for readers."""
    return name.replace("_", " ").replace("retrieval.", "").replace(".", " ")


def join_queries(current: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Return the queries that both rank tables hold, with the columns ``rank_current`` and
    ``rank_reference``."""
    pairs = current.merge(
        reference, on=KEYS, suffixes=("_current", "_reference"), validate="one_to_one"
    )
    unlike = pairs[pairs["protocol_current"] != pairs["protocol_reference"]]
    if len(unlike):
        raise ValueError(
            f"{unlike['direction'].iloc[0]}: {len(unlike)} of {len(pairs)} common queries were "
            "ranked under different protocols (other candidates or true boxes), so their "
            "ranks are not comparable: evaluate both models on the same split with the same "
            "protocol"
        )
    return pairs


def join_trainings(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the ranks of the queries that all tables hold: index ``KEYS``, one column for each
    table."""
    first, *others = tables
    pairs = [join_queries(other, first).set_index(KEYS)["rank_current"] for other in others]
    return pd.concat(
        [first.set_index(KEYS)["rank"], *pairs], axis=1, join="inner", keys=range(len(tables))
    )


def compare_ranks(
    current: Mapping[str, Sequence[pd.DataFrame]],
    reference: Mapping[str, Sequence[pd.DataFrame]],
    ks: Iterable[int],
    *,
    resamples: int,
    seed: int,
) -> Comparison | None:
    """Compare two models by R@K of retrieval, their sum, and accuracy otherwise, in percent, on
    their common queries.

    Args:
        current: the name of a model, and one table of ranks for each of its trainings, which differ
            in the seed.
        reference: the same of the other model.

    Returns:
        None if the tables share no query.
    """
    (name, ours), (other, theirs) = *current.items(), *reference.items()
    ranks, metrics, most = (
        join_trainings([*ours, *theirs]),
        dict[str, Sampled](),
        dict[str, float](),
    )
    for key, queries in ranks.groupby(level="direction", sort=True):
        direction = str(key)
        if direction.startswith(ZERO_SHOT):
            continue
        image_ids = queries.index.get_level_values("image_id")
        for k in ks if direction in RETRIEVAL else [1]:
            metric = f"{direction}.R@{k}" if direction in RETRIEVAL else f"{direction}.accuracy"
            metrics[metric] = sample_images(
                np.where(queries < k, 100.0, 0.0), image_ids, resamples, seed
            )
    recalls = [metrics[metric] for metric in metrics if metric.startswith(RETRIEVAL)]
    if {metric.partition(".")[0] for metric in metrics} >= {*RETRIEVAL}:
        metrics[RECALL_SUM] = Sampled(
            *(torch.stack(values).sum(dim=0) for values in zip(*recalls, strict=True))
        )
        most[RECALL_SUM] = 100.0 * len(recalls)
    if not metrics:
        return None
    differences = [
        compare_trainings(metric, metrics[metric], len(ours), seed, most.get(metric, 100.0))
        for metric in metrics
    ]
    images = ranks.index.get_level_values("image_id").nunique()
    total = len(pd.concat([table[KEYS] for table in (*ours, *theirs)]).drop_duplicates())
    return Comparison(
        name, other, differences, images, (len(ranks), total), (len(ours), len(theirs))
    )


def sample_images(
    values: NDArray[np.float64], image_ids: ArrayLike, resamples: int, seed: int
) -> Sampled:
    """Return the means of T trainings' values of Q queries, (Q, T), whose images (Q,) are
    resampled."""
    rows = torch.from_numpy(pd.factorize(np.asarray(image_ids), sort=True)[0])
    counts = rows.bincount()[:, None].expand(-1, values.shape[1]).double()
    totals = torch.zeros_like(counts).index_add_(0, rows, torch.from_numpy(values))
    return Sampled(
        totals.sum(dim=0) / counts.sum(dim=0), bootstrap_means(totals, counts, resamples, seed)
    )


def compare_trainings(
    name: str, metric: Sampled, current: int, seed: int, most: float = inf
) -> Difference:
    """Compare the first ``current`` trainings with the others, which are of another model; a value
    is at most ``most``.

    An interval adds two independent parts: the bootstrap over images of the mean over seeds, and
    Student's t for the seeds, with one variance for both models. The variance between trainings
    also has a part of the images, so the interval holds the true difference at least as often as it
    says. With one training of each model, only images vary.
    """
    sizes = [current, len(metric.measured) - current]
    measured, resampled = metric.measured.split(sizes), metric.resampled.split(sizes, dim=1)
    freedom, generator = sum(sizes) - 2, torch.Generator().manual_seed(seed + 1)
    student = torch.zeros(len(metric.resampled), dtype=torch.float64)
    if freedom:
        normal, *others = torch.randn(
            freedom + 1, len(student), generator=generator, dtype=torch.float64
        )
        deviation = sum(float(((values - values.mean()) ** 2).sum()) for values in measured)
        student = sqrt(deviation / freedom) * normal / (torch.stack(others) ** 2).mean(dim=0).sqrt()
    ours, theirs = (values.mean(dim=1) for values in resampled)
    parts = [
        (ours - theirs, 1 / sizes[0] + 1 / sizes[1]),
        (ours, 1 / sizes[0]),
        (theirs, 1 / sizes[1]),
    ]
    both, *single = (percentile_interval(means + sqrt(factor) * student) for means, factor in parts)
    one, other = ((max(low, 0.0), min(high, most)) for low, high in single)
    gain = measured[0].mean() - measured[1].mean()
    of_seeds = percentile_interval(gain + sqrt(parts[0][1]) * student) if freedom else None
    return Difference(
        name,
        float(measured[0].mean()),
        float(measured[1].mean()),
        both,
        one,
        other,
        (measured[0].tolist(), measured[1].tolist()),
        percentile_interval(parts[0][0]),
        of_seeds,
    )
