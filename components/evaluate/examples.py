"""What the report shows of single queries: the best and the worst."""

import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.report.page import Query, Result
from components.evaluate.measure import Measured
from components.evaluate.pictures import Thumbnails

SHOWN = 5


def extreme_queries(
    measured: Measured, dataset: Dataset, thumbnails: Thumbnails, count: int
) -> tuple[dict[str, list[Query]], dict[str, list[Query]]]:
    """The best and the worst ``count`` queries of each direction, no two of one image.

    What is found at the first place is not among the worst, so that they may be fewer.
    """
    best: dict[str, list[Query]] = {}
    worst: dict[str, list[Query]] = {}
    image_ids, texts = list(dataset.images["image_id"]), list(dataset.captions["text"])
    row_of = {image_id: row for row, image_id in enumerate(image_ids)}
    image_of = torch.tensor([row_of[image_id] for image_id in dataset.captions["image_id"]])
    (by_captions, by_images), (image_rows, caption_rows) = measured.all_ranks(), measured.rows()

    def caption_query(place: int) -> Query:
        row = image_rows[place : place + 1]
        fold = next(fold for fold in measured.folds if (fold.images == row).any())
        scores = measured.scores(row, fold.captions)[0]
        results = [
            Result(bool(image_of[column] == row), f"{score:.2f}", text=texts[column])
            for score, column in top_results(scores, fold.captions)
        ]
        own = [texts[column] for column in fold.captions[image_of[fold.captions] == row].tolist()]
        expected = [] if any(result.correct for result in results) else own[:2]
        image = thumbnails.of(image_ids[int(row)])
        return Query(_rank(by_captions.expected()[place]), results, image=image, expected=expected)

    def image_query(place: int) -> Query:
        column = caption_rows[place : place + 1]
        fold = next(fold for fold in measured.folds if (fold.captions == column).any())
        scores = measured.scores(fold.images, column)[:, 0]
        results = [
            Result(bool(image_of[column] == row), f"{score:.2f}", image=thumbnails.of(image_ids[row]))
            for score, row in top_results(scores, fold.images)
        ]
        return Query(_rank(by_images.expected()[place]), results, text=texts[int(column)])

    for direction, ranks, owners, query in (
        ("an image looks for captions", by_captions, image_rows, caption_query),
        ("a sentence looks for images", by_images, image_of[caption_rows], image_query),
    ):
        order = ranks.expected().argsort(stable=True)
        best[direction] = [query(place) for place in _of_different_images(order, owners, count)]
        missed = order.flip(0)[: int((ranks.expected() > 0).sum())]
        worst[direction] = [query(place) for place in _of_different_images(missed, owners, count)]
    return best, worst


def top_results(scores: Tensor, rows: Tensor) -> list[tuple[float, int]]:
    """The first few of ``rows`` by their scores."""
    best = scores.topk(min(SHOWN, len(scores)))
    return list(zip(best.values.tolist(), rows[best.indices].tolist(), strict=True))


def _rank(expected: Tensor) -> str:
    return f"{float(expected) + 1:g}"


def _of_different_images(order: Tensor, owners: Tensor, count: int) -> list[int]:
    chosen: dict[int, int] = {}
    for place in order.tolist():
        chosen.setdefault(int(owners[place]), place)
        if len(chosen) == count:
            break
    return list(chosen.values())
