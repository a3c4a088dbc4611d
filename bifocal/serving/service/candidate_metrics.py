"""Metrics of a comparison for Prometheus, from the same sums as its report."""

from collections.abc import Iterator

import numpy as np
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from bifocal.serving.canary.counts import EDGES
from bifocal.serving.canary.report import RUNNING
from bifocal.serving.service.candidate import Comparison

PREFIX = "bifocal_comparison"
LABELS = ("arm", "release")
SUMS = {
    "searches": "Searches",
    "errors": "Searches that failed",
    "nothing": "Searches that found nothing",
    "calibrated": "Searches whose relevance is known",
    "relevance": "Sum of the probabilities that the first result is relevant",
    "clicked": "Answers of which the client chose a result",
}
BUCKETS = range(24, len(EDGES), 14)
"""Edges of a histogram in the metrics: each about twice the one before."""


class ComparisonCollector(Collector):
    """Metrics of the present pair of releases; they begin anew with another pair."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        comparison, report = self._comparison, self._comparison.report
        running = float(comparison.state == RUNNING)
        yield GaugeMetricFamily(f"{PREFIX}_running", "Whether a candidate is compared", running)
        if report is None:
            return
        arms = {
            ("champion", report.champion.name): report.counts_champion,
            ("candidate", report.candidate.name): report.counts_candidate,
        }
        for name, text in SUMS.items():
            family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=LABELS)
            for labels, counts in arms.items():
                family.add_metric(labels, float(getattr(counts, name).sum()))
            yield family
        latency = HistogramMetricFamily(f"{PREFIX}_seconds", "Latency of searches", labels=LABELS)
        middles = np.concatenate([EDGES[:1], np.sqrt(EDGES[1:] * EDGES[:-1]), EDGES[-1:]])
        for labels, counts in arms.items():
            below = np.cumsum(counts.latency)
            buckets = [(f"{EDGES[edge]:.3g}", float(below[edge])) for edge in BUCKETS]
            total = float((middles * counts.latency).sum())
            latency.add_metric(labels, [*buckets, ("+Inf", float(below[-1]))], total)
        yield latency
        if report.mode == "shadow":
            for name, text, value in (
                ("dropped", "Searches that were not repeated for lack of time", report.dropped),
                ("compared", "Searches that both releases answered", float(report.compared.sum())),
                ("overlap_at_10", "Sum of the overlaps of their first ten results", float(report.overlap.sum())),
            ):
                yield CounterMetricFamily(f"{PREFIX}_{name}", text, value)
