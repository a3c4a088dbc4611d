"""Best and worst queries of retrieval, for the report."""

from torch import Tensor

from bifocal.evaluation.base import Subject
from bifocal.evaluation.retrieval.ranked_split import RankedSplit
from bifocal.report.sections import Answer, AnswerList, Badge, Query, QueryList

ANSWERS = 5
"""Answers shown per query."""
DIRECTIONS = ("an image as query", "a sentence as query")


def best_and_worst_queries(subject: Subject, ranked: RankedSplit, count: int) -> list[QueryList]:
    """Return the worst and best ``count`` queries per direction, one per image; rank 1 is never among the worst."""
    examples = _Examples(subject, ranked)
    worst, best = [], []
    queries = (examples.image_query, examples.caption_query)
    for title, ranks, images, make in zip(DIRECTIONS, ranked.all_ranks(), examples.query_images, queries, strict=True):
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
        best.append(QueryList(f"Best: {title}", [make(query) for query in one_per_image(order, images, count)]))
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

    def image_query(self, query: int) -> Query:
        """Return image query number ``query`` with its first captions."""
        row = self.image_rows[query : query + 1]
        fold = next(fold for fold in self.ranked.folds if (fold.images == row).any())
        answers = [
            Answer(bool(self.image_of[column] == row), f"{score:.2f}", text=self.texts[column])
            for score, column in top_answers(self.ranked.scores(row, fold.captions)[0], fold.captions)
        ]
        correct = [self.texts[column] for column in fold.captions[self.image_of[fold.captions] == row].tolist()]
        missing = "" if any(answer.correct for answer in answers) else f"Correct: {' · '.join(correct[:2])}"
        image = self.thumbnails.uri(self.image_ids[int(row)])
        badge = _rank_badge(self.caption_ranks[query])
        return Query([AnswerList(answers)], "Captions", image, badge, missing)

    def caption_query(self, query: int) -> Query:
        """Return caption query number ``query`` with its first images."""
        column = self.caption_rows[query : query + 1]
        fold = next(fold for fold in self.ranked.folds if (fold.captions == column).any())
        answers = [
            Answer(bool(self.image_of[column] == row), f"{score:.2f}", image=self.thumbnails.uri(self.image_ids[row]))
            for score, row in top_answers(self.ranked.scores(fold.images, column)[:, 0], fold.images)
        ]
        badge = _rank_badge(self.image_ranks[query])
        return Query([AnswerList(answers)], self.texts[int(column)], badge=badge)


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
