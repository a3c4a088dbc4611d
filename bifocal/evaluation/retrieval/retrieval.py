"""Cross-modal retrieval: R@K, ranks, intervals, re-ranking, curves, and the best and worst queries."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.retrieval.examples import best_and_worst_queries
from bifocal.evaluation.retrieval.ranked_split import RankedSplit, rank_split
from bifocal.evaluation.retrieval.tables import (
    DIRECTIONS,
    direction_table,
    metric_rows,
    rank_histogram,
    recall_curves,
    retrieval_queries,
)
from bifocal.metrics import (
    chance_precision,
    chance_report,
    protocol_precision,
    retrieval_intervals,
    summarize_folds,
)
from bifocal.metrics.bootstrap import bootstrap_means, percentile_interval
from bifocal.metrics.retrieval.precision import PRECISIONS
from bifocal.report.charts import bar_chart, line_chart
from bifocal.report.sections import Chart, Section

ProtocolName = Literal["full", "coco_5fold_1k", "coco_5k", "coco_1k", "flickr_1k"]
NOTE = (
    "R@K: percentage of queries with a correct answer among the first K. Ranks count from 1. R is the number of an "
    "image's captions: R-precision is their share among the first R answers, mAP@R the mean precision at these ranks, "
    "0 at a wrong answer. Tied answers count as if each of their orders were equally likely. Re-ranked: scores "
    "normalized by each candidate's best score among all queries of the split (transductive: a service does not have "
    "these queries). Corrected: each candidate has a bias from its scores with a bank of training queries, as in "
    "search."
)


class Retrieval:
    """Retrieval of captions by an image and of images by a caption.

    Re-ranking: Engilberge, "Deep inside visual-semantic embeddings", 2020, eq. (3.12)-(3.13). It is transductive. With
    a bank of training queries, the ranks with a hubness correction are measured too, see ``bifocal.hubness``.

    Args:
        protocol: images that are ranked together, and captions per image: ``full`` ranks the whole split; the others
            are protocols of papers, see ``bifocal.metrics.PROTOCOLS``.
        ks: K of R@K.
        max_k: largest K of the recall curves.
        bootstrap_resamples: of the images, for the 95 % intervals.
        shown_queries: best and worst queries of each direction in the report.
    """

    title = "Retrieval"

    def __init__(
        self,
        protocol: ProtocolName = "full",
        ks: Sequence[int] = (1, 5, 10),
        max_k: int = 50,
        bootstrap_resamples: int = 1000,
        shown_queries: int = 6,
    ) -> None:
        self.protocol, self.ks, self.max_k = protocol, tuple(ks), max_k
        self.resamples, self.shown_queries = bootstrap_resamples, shown_queries
        problems = list(self.conflicts({"ks": self.ks}))
        if problems:
            raise ValueError(problems[0])

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Yield one message per invalid argument."""
        ks = arguments.get("ks", (1,))
        if not ks or min(ks) < 1:
            yield f"ks is {list(ks)}: give at least one K, each at least 1"

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; raise ``ValueError`` if the split has another size than the protocol expects."""
        ranked = rank_split(subject, self.protocol)
        metrics = self.measure(ranked, subject.seed)
        curves, histogram = recall_curves(ranked, self.max_k), rank_histogram(ranked)
        lines = _for_readers({name: curves[name].tolist() for name in curves.columns[1:]})
        dashed = [name for name in lines if name.endswith("re-ranked")]
        bars = _for_readers({name: histogram[name].tolist() for name in DIRECTIONS})
        labels = ("rank of the first correct answer", "percent of the queries")
        figures = {
            "recall_curves": line_chart(lines, curves["K"].tolist(), "K", "R@K, percent", dashed),
            "rank_histogram": bar_chart(bars, histogram["rank"].tolist(), *labels),
        }
        note = (
            f"{NOTE} Protocol {self.protocol}: {metrics['images']:,} images with {metrics['captions']:,} captions. "
            f"Intervals: {self.resamples:,} bootstrap resamples of the images."
        )
        examples_note = (
            "Correct answers are marked. If one sentence describes several images, only the image that it was written "
            "for counts as correct."
        )
        tables = [direction_table(metrics, name) for name in DIRECTIONS]
        return Result(
            self.title,
            metrics,
            rows=list(metric_rows(metrics, self.protocol)),
            queries=retrieval_queries(subject, ranked),
            sections=[
                Section(self.title, note, [*tables, *map(Chart, figures.values())]),
                Section("Queries", examples_note, best_and_worst_queries(subject, ranked, self.shown_queries)),
            ],
            tables={"recall_curves": curves, "rank_histogram": histogram},
            figures=figures,
        )

    def measure(self, ranked: RankedSplit, seed: int) -> dict[str, Any]:
        """Return R@K and ranks of both directions, with intervals, re-ranked, and at chance level."""
        report = summarize_folds(ranked.raw, self.ks)
        intervals = retrieval_intervals(
            ranked.all_ranks(), ranked.image_of_query(), self.ks, resamples=self.resamples, seed=seed
        )
        # An image has several captions, a caption has one image: R-Precision of image retrieval would be R@1.
        precision = protocol_precision(ranked.folds, ranked.scores)
        chance = chance_report(ranked.folds[0].image_of_caption, self.ks)
        for values, means in (
            (report, precision.mean(dim=0)),
            (chance, chance_precision(ranked.folds[0].image_of_caption).mean(dim=0)),
        ):
            values["caption_retrieval"] |= dict(zip(PRECISIONS, (100 * means).tolist(), strict=True))
        resampled = bootstrap_means(100 * precision, torch.ones_like(precision), self.resamples, seed)
        for name, column in zip(PRECISIONS, resampled.T, strict=True):
            low, high = percentile_interval(column, 0.95)
            intervals["caption_retrieval"][name] = {"low": low, "high": high}
        recalls = [value for values in report.values() for name, value in values.items() if name.startswith("R@")]
        return {
            **report,
            "recall_sum": sum(recalls),
            "intervals": intervals,
            "reranked": summarize_folds(ranked.reranked, self.ks),
            **({} if ranked.corrected is None else {"corrected": summarize_folds(ranked.corrected, self.ks)}),
            "chance": chance,
            "images": sum(len(fold.images) for fold in ranked.folds),
            "captions": sum(len(fold.captions) for fold in ranked.folds),
        }


def _for_readers(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return ``values`` by names for readers."""
    return {name.replace("_", " ").replace("reranked", "re-ranked"): value for name, value in values.items()}
