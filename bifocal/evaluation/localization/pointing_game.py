"""Pointing game: does the maximum of a phrase's heatmap lie in one of its boxes?"""

from collections.abc import Mapping, Set
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.datasets import read_dataset
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.localization.heatmaps import HeatmapExample, dense_heatmap
from bifocal.evaluation.localization.locator import (
    AnyLocalizer,
    choose_locator,
    pointing_skip_reason,
)
from bifocal.evaluation.rank_tables import query_ranks, text_hashes
from bifocal.metrics import accuracy_by, center_baseline, random_baseline
from bifocal.metrics.bootstrap import mean_interval
from bifocal.models.phrase_locator import PhraseLocator, PointingResult, point_at_phrases
from bifocal.report.pictures import contact_sheet
from bifocal.report.sections import Badge, Gallery, GalleryItem, MetricRow, Section, Table
from bifocal.text import tokenize

SHOWN_CATEGORIES = 12


class PointingGame:
    """Accuracy of the pointing game, beside pointing at the image center and at random.

    Xiao, Sigal and Lee, CVPR 2017; BEAN, table 3; Engilberge's thesis, section 4.3.1. The point is
    the center of the best region. ``corner_accuracy`` has the protocol of BEAN's code: its upper
    left corner must lie inside a box.

    Args:
        localizer: part of ``bifocal.localization``; None for the encoder's own. A k that is not
            given is tuned on ``val``.
        min_area: part of the image that the smallest rectangle around the boxes of a phrase covers
            at least; other phrases are left out. The code of Akbari et al., CVPR 2019, has 0.05,
            which their paper does not say.
        training: folder of the dataset whose captions trained the model, for the accuracy of
            phrases with a word that no training caption has (figure 7 of BEAN, 4.8 of the thesis);
            None for the training split of this dataset.
    """

    title = "Pointing game"
    parts: ClassVar[Mapping[str, str]] = {"localizer": "bifocal.localization"}

    def __init__(
        self,
        localizer: AnyLocalizer | None = None,
        min_area: float = 0.0,
        training: Path | str | None = None,
    ) -> None:
        self.localizer, self.min_area = localizer, min_area
        self.training = None if training is None else Path(training)

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without phrases, boxes or a localizer."""
        skipped = pointing_skip_reason(subject, self.localizer)
        if skipped:
            return Result(self.title, skipped=skipped)
        chosen = choose_locator(subject, self.localizer)
        pointing = point_at_phrases(chosen.locator, subject.split, min_area=self.min_area)
        dataset = subject.dataset if self.training is None else read_dataset(self.training)
        words = {
            word for text in dataset.split("train").captions["text"] for word in tokenize(text)
        }
        metrics = pointing_metrics(pointing, subject.resamples, subject.seed, words) | chosen.tuning
        phrases = pointing.phrases
        content = text_hashes(phrases["phrase"])
        examples = shown_examples(pointing, chosen.locator, 2 * subject.shown, subject.seed)
        note = (
            "Heatmap of a phrase, its true boxes in white, and the predicted point. "
            f"{metrics['phrases']:,} phrases; a point inside a true box is a hit. At most half "
            "of the examples are misses."
        )
        items = [
            GalleryItem(
                [example.picture(subject.thumbnails)],
                text,
                Badge("hit" if hit else "miss", good=hit),
            )
            for example, text, hit in examples
        ]
        cells = [
            (example.image(subject.thumbnails), f"{text} ({'hit' if hit else 'miss'})")
            for example, text, hit in examples
        ]
        return Result(
            self.title,
            {"pointing": metrics},
            rows=metric_rows(metrics),
            queries=query_ranks(
                "pointing",
                phrases["phrase_id"],
                phrases["image_id"],
                content,
                _true_boxes(phrases),
                ~pointing.hits,
            ),
            sections=[Section(self.title, note, [*metric_tables(metrics), Gallery(items)])],
            figures={"pointing": contact_sheet(self.title, cells)} if cells else {},
        )


def _true_boxes(phrases: pd.DataFrame) -> list[str]:
    """Return the hash of the boxes of each phrase: with other boxes, a hit means something else."""
    return [
        sha256(np.asarray(boxes, dtype=np.float32).tobytes()).hexdigest()
        for boxes in phrases["boxes"]
    ]


def pointing_metrics(
    pointing: PointingResult, resamples: int, seed: int, words: Set[str] = frozenset()
) -> dict[str, Any]:
    """Return the accuracy in percent, its 95 % interval and the baselines; of all phrases and by
    category.

    ``unseen_words`` has the values of the phrases with a word that is not among the ``words`` of
    the training. Without such phrases, or without ``words``, the result has no ``unseen_words``.
    """
    boxes = list(pointing.phrases["boxes"])
    values = {
        "accuracy": pointing.hits.astype(np.float64),
        "centre": center_baseline(pointing.sizes, boxes).astype(np.float64),
        "random": random_baseline(pointing.sizes, boxes),
        "corner_accuracy": pointing.corner_hits.astype(np.float64),
    }
    images = list(pointing.phrases["image_id"])
    low, high = mean_interval(100 * values["accuracy"], images, resamples=resamples, seed=seed)
    means = {name: 100 * float(value.mean()) for name, value in values.items()}
    categories = _by_category(list(pointing.phrases["category"]), values)
    result = {**means, "low": low, "high": high, "phrases": len(boxes), "categories": categories}
    unseen = np.array([not set(tokenize(text)) <= words for text in pointing.phrases["phrase"]])
    if words and unseen.any():
        of_unseen = {name: 100 * float(value[unseen].mean()) for name, value in values.items()}
        result["unseen_words"] = {**of_unseen, "phrases": int(unseen.sum())}
    return result


def _by_category(
    names: list[Any], values: Mapping[str, NDArray[np.float64]]
) -> dict[str, dict[str, float]]:
    """Return the metrics by category, the most frequent first; a phrase of category ``a/b`` counts
    for a and b."""
    members = [
        (category, row)
        for row, joined in enumerate(names)
        if isinstance(joined, str)
        for category in joined.split("/")
    ]
    categories, rows = [category for category, _ in members], [row for _, row in members]
    means = (
        {name: accuracy_by(value[rows], categories) for name, value in values.items()}
        if members
        else {}
    )
    order = sorted(set(categories), key=lambda category: (-categories.count(category), category))
    return {
        category: {name: by_name[category] for name, by_name in means.items()}
        | {"phrases": categories.count(category)}
        for category in order
    }


def metric_rows(metrics: Mapping[str, Any]) -> list[MetricRow]:
    """Return the accuracy, its baselines, and k if it was tuned, as scalars."""
    rows = [
        MetricRow(
            "pointing.accuracy",
            metrics["accuracy"],
            "Pointing accuracy",
            (metrics["low"], metrics["high"]),
            {"image center": metrics["centre"], "random point": metrics["random"]},
            headline=True,
        ),
        MetricRow("pointing.centre", metrics["centre"], "Accuracy of the image center"),
        MetricRow("pointing.random", metrics["random"], "Accuracy of a random point"),
        MetricRow(
            "pointing.corner",
            metrics["corner_accuracy"],
            "Accuracy by the corner, as in BEAN's code",
        ),
    ]
    if "unseen_words" in metrics:
        unseen = metrics["unseen_words"]
        label, baselines = (
            f"Accuracy of {unseen['phrases']:,} phrases with unseen words",
            {"image center": unseen["centre"]},
        )
        rows.append(
            MetricRow("pointing.unseen_words", unseen["accuracy"], label, baselines=baselines)
        )
    return rows + (
        [MetricRow("pointing.k", float(metrics["k"]), "k of the heatmap", unit="")]
        if "k" in metrics
        else []
    )


def metric_tables(metrics: Mapping[str, Any]) -> list[Table]:
    """Return the tables of the report: accuracy by category, and the accuracy of each k that was
    tried."""
    tables = []
    categories = metrics["categories"]
    if categories:
        rows = [
            (
                name,
                *(f"{row[key]:.1f}" for key in ("accuracy", "centre", "random")),
                f"{row['phrases']:,}",
            )
            for name, row in list(categories.items())[:SHOWN_CATEGORIES]
        ]
        largest = f", the {SHOWN_CATEGORIES} largest" if len(categories) > SHOWN_CATEGORIES else ""
        tables.append(
            Table(
                f"Accuracy by category{largest}", ("", "hits", "center", "random", "phrases"), rows
            )
        )
    if "accuracy_of_k" in metrics:
        title = f"k = {metrics['k']}, tuned on {metrics['chosen_on']:,} phrases of the split val"
        tried = [(f"k = {k}", f"{value:.1f}") for k, value in metrics["accuracy_of_k"].items()]
        tables.append(Table(title, ("", "hits on val"), tried))
    return tables


def shown_examples(
    pointing: PointingResult, locator: PhraseLocator, count: int, seed: int
) -> list[tuple[HeatmapExample, str, bool]]:
    """Draw ``count`` phrases of different images, with whether each is a hit: at most half are
    misses, shown first."""
    order = np.random.default_rng(seed).permutation(len(pointing.hits))
    chosen: list[int] = []
    for hit, limit in ((False, count // 2), (True, count)):
        images = set(pointing.phrases["image_id"].iloc[chosen])
        for row in order:
            image = pointing.phrases["image_id"].iloc[row]
            if len(chosen) < limit and pointing.hits[row] == hit and image not in images:
                chosen.append(int(row))
                images.add(image)
    examples = []
    scores = locator.locate(pointing.phrases.iloc[chosen])
    for row, values, boxes in zip(chosen, *scores, strict=True):
        phrase, size = pointing.phrases.iloc[row], pointing.sizes[row]
        truth = 100 * phrase["boxes"].astype(np.float64) / np.tile(size, 2)
        point = 100 * pointing.points[row] / size
        example = HeatmapExample(
            str(phrase["image_id"]), dense_heatmap(values, boxes), truth, point
        )
        examples.append((example, str(phrase["phrase"]), bool(pointing.hits[row])))
    return examples
