"""Cross-modal retrieval: R@K and ranks of both directions, with charts and the best and worst
queries."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.retrieval.ranked_split import (
    DIRECTIONS,
    RankedSplit,
    direction_table,
    metric_rows,
    rank_histogram,
    rank_split,
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
from bifocal.report.sections import (
    Answer,
    AnswerList,
    Badge,
    Chart,
    QueryList,
    ReportQuery,
    Section,
)

ProtocolName = Literal["full", "coco_5fold_1k", "coco_5k", "coco_1k", "flickr_1k"]
NOTE = (
    "R@K: percentage of queries with a correct answer among the first K. Ranks count from 1. R "
    "is the number of an image's captions: R-precision is their share among the first R "
    "answers, mAP@R the mean precision at these ranks, 0 at a wrong answer. Tied answers count "
    "as if each of their orders were equally likely. Re-ranked: scores normalized by each "
    "candidate's best score among all queries of the split (transductive: a service does not "
    "have these queries). Corrected: each candidate has a bias from its scores with a bank of "
    "training queries, as in search."
)
ANSWERS = 5
"""Answers shown per query."""
QUERY_KINDS = ("an image as query", "a sentence as query")


class Retrieval:
    """Retrieval of captions by an image and of images by a caption.

    Re-ranking: Engilberge, "Deep inside visual-semantic embeddings", 2020, eq. (3.12)-(3.13). It is
    transductive. With a bank of training queries, the ranks with a hubness correction are measured
    too, see ``bifocal.hubness``.

    Args:
        protocol: images that are ranked together, and captions per image: ``full`` ranks the whole
            split; the others are protocols of papers, see ``bifocal.metrics.PROTOCOLS``.
        ks: K of R@K.
        max_k: largest K of the recall curves.
    """

    title = "Retrieval"

    def __init__(
        self, protocol: ProtocolName = "full", ks: Sequence[int] = (1, 5, 10), max_k: int = 50
    ) -> None:
        self.protocol, self.ks, self.max_k = protocol, tuple(ks), max_k
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
        """Evaluate ``subject``; raise ``ValueError`` if the split has another size than the
        protocol expects."""
        ranked = rank_split(subject, self.protocol)
        metrics = self.measure(ranked, subject)
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
            f"{NOTE} Protocol {self.protocol}: {metrics['images']:,} images with "
            f"{metrics['captions']:,} captions. Intervals: {subject.resamples:,} bootstrap "
            "resamples of the images."
        )
        examples_note = (
            "Correct answers are marked. If one sentence describes several images, only the "
            "image that it was written for counts as correct."
        )
        tables = [direction_table(metrics, name) for name in DIRECTIONS]
        return Result(
            self.title,
            metrics,
            rows=list(metric_rows(metrics, self.protocol)),
            queries=retrieval_queries(subject, ranked),
            sections=[
                Section(self.title, note, [*tables, *map(Chart, figures.values())]),
                Section(
                    "Queries", examples_note, best_and_worst_queries(subject, ranked, subject.shown)
                ),
            ],
            tables={"recall_curves": curves, "rank_histogram": histogram},
            figures=figures,
        )

    def measure(self, ranked: RankedSplit, subject: Subject) -> dict[str, Any]:
        """Return R@K and ranks of both directions, with intervals, re-ranked, and at chance
        level."""
        report = summarize_folds(ranked.raw, self.ks)
        intervals = retrieval_intervals(
            ranked.all_ranks(),
            ranked.image_of_query(),
            self.ks,
            resamples=subject.resamples,
            seed=subject.seed,
        )
        # An image has several captions, a caption has one image: R-Precision of image retrieval
        # would be R@1.
        precision = protocol_precision(ranked.folds, ranked.scores)
        chance = chance_report(ranked.folds[0].image_of_caption, self.ks)
        for values, means in (
            (report, precision.mean(dim=0)),
            (chance, chance_precision(ranked.folds[0].image_of_caption).mean(dim=0)),
        ):
            values["caption_retrieval"] |= dict(
                zip(PRECISIONS, (100 * means).tolist(), strict=True)
            )
        resampled = bootstrap_means(
            100 * precision, torch.ones_like(precision), subject.resamples, subject.seed
        )
        for name, column in zip(PRECISIONS, resampled.T, strict=True):
            low, high = percentile_interval(column)
            intervals["caption_retrieval"][name] = {"low": low, "high": high}
        recalls = [
            value
            for values in report.values()
            for name, value in values.items()
            if name.startswith("R@")
        ]
        return {
            **report,
            "recall_sum": sum(recalls),
            "intervals": intervals,
            "reranked": summarize_folds(ranked.reranked, self.ks),
            **(
                {}
                if ranked.corrected is None
                else {"corrected": summarize_folds(ranked.corrected, self.ks)}
            ),
            "chance": chance,
            "images": sum(len(fold.images) for fold in ranked.folds),
            "captions": sum(len(fold.captions) for fold in ranked.folds),
        }


def _for_readers(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return ``values`` by names for readers."""
    return {
        name.replace("_", " ").replace("reranked", "re-ranked"): value
        for name, value in values.items()
    }


def best_and_worst_queries(subject: Subject, ranked: RankedSplit, count: int) -> list[QueryList]:
    """Return the worst and best ``count`` queries per direction, one per image; rank 1 is never
    among the worst."""
    examples = _Examples(subject, ranked)
    worst, best = [], []
    queries = (examples.image_query, examples.caption_query)
    for title, ranks, images, make in zip(
        QUERY_KINDS, ranked.all_ranks(), examples.query_images, queries, strict=True
    ):
        expected = ranks.expected()
        order = expected.argsort(stable=True)
        missed = order.flip(0)[: int((expected > 0).sum())]
        worst.append(
            QueryList(
                f"Worst: {title}",
                [make(query) for query in one_per_image(missed, images, count)],
                empty="Every query has a correct answer at rank 1.",
            )
        )
        best.append(
            QueryList(
                f"Best: {title}", [make(query) for query in one_per_image(order, images, count)]
            )
        )
    return [*worst, *best]


class _Examples:
    """Queries of a ranked split with their first answers."""

    def __init__(self, subject: Subject, ranked: RankedSplit) -> None:
        self.ranked, self.thumbnails = ranked, subject.thumbnails
        self.image_ids, self.texts = subject.pairs.image_ids, list(subject.split.captions["text"])
        self.image_of = subject.pairs.image_of_caption
        self.image_rows, self.caption_rows = ranked.rows()
        self.caption_ranks, self.image_ranks = (ranks.expected() for ranks in ranked.all_ranks())

    @property
    def query_images(self) -> tuple[Tensor, Tensor]:
        """Return the image row of each query of both directions."""
        return self.image_rows, self.image_of[self.caption_rows]

    def image_query(self, query: int) -> ReportQuery:
        """Return image query number ``query`` with its first captions."""
        row = self.image_rows[query : query + 1]
        fold = next(fold for fold in self.ranked.folds if (fold.images == row).any())
        answers = [
            Answer(bool(self.image_of[column] == row), f"{score:.2f}", text=self.texts[column])
            for score, column in top_answers(
                self.ranked.scores(row, fold.captions)[0], fold.captions
            )
        ]
        correct = [
            self.texts[column]
            for column in fold.captions[self.image_of[fold.captions] == row].tolist()
        ]
        missing = (
            ""
            if any(answer.correct for answer in answers)
            else f"Correct: {' · '.join(correct[:2])}"
        )
        image = self.thumbnails.uri(self.image_ids[int(row)])
        badge = _rank_badge(self.caption_ranks[query])
        return ReportQuery([AnswerList(answers)], "Captions", image, badge, missing)

    def caption_query(self, query: int) -> ReportQuery:
        """Return caption query number ``query`` with its first images."""
        column = self.caption_rows[query : query + 1]
        fold = next(fold for fold in self.ranked.folds if (fold.captions == column).any())
        answers = [
            Answer(
                bool(self.image_of[column] == row),
                f"{score:.2f}",
                image=self.thumbnails.uri(self.image_ids[row]),
            )
            for score, row in top_answers(
                self.ranked.scores(fold.images, column)[:, 0], fold.images
            )
        ]
        badge = _rank_badge(self.image_ranks[query])
        return ReportQuery([AnswerList(answers)], self.texts[int(column)], badge=badge)


def top_answers(scores: Tensor, rows: Tensor, count: int = ANSWERS) -> list[tuple[float, int]]:
    """Return score and row of the ``count`` highest of C scores."""
    best = scores.topk(min(count, len(scores)))
    return list(zip(best.values.tolist(), rows[best.indices].tolist(), strict=True))


def one_per_image(order: Tensor, images: Tensor, count: int) -> list[int]:
    """Return the first ``count`` queries of ``order`` that belong to different images."""
    chosen: dict[int, int] = {}
    for query in order.tolist():
        chosen.setdefault(int(images[query]), query)
        if len(chosen) == count:
            break
    return list(chosen.values())


def _rank_badge(expected: Tensor) -> Badge:
    rank = f"{float(expected) + 1:g}"
    return Badge(f"rank {rank}", good=rank == "1")
