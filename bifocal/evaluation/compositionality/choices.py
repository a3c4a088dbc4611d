"""Choices between a caption and its edit, given the image: accuracy by kind of edit, and a list of wrong ones."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.compositionality.pair_scores import pair_scores
from bifocal.metrics.bootstrap import mean_interval
from bifocal.report.metric_rows import MetricRow, metric_table
from bifocal.report.sections import Section, Table

TIE = 1e-5
"""Difference of two scores up to which they are equal: sums of the same numbers in another order differ by less."""
CHANCE = 50.0


def choice_result(
    title: str,
    key: str,
    choices: pd.DataFrame,
    labels: Mapping[str, str],
    subject: Subject,
    note: str,
    *,
    resamples: int,
    shown: int,
) -> Result:
    """Return the accuracy of ``subject`` by edit, under ``key``; equal scores count half.

    Args:
        choices: image_id, edit, caption and edited, one row per choice.
        labels: names of the edits for readers, in the order of the table.
        shown: wrong choices in the report, of each kind of edit.
    """
    choices = choices.assign(margin=score_margins(subject, choices))
    choices["correct"] = np.where(choices["margin"].abs() <= TIE, 0.5, choices["margin"] > 0).astype(np.float64)
    metrics = {
        name: _accuracy(choices[choices["edit"] == name], resamples, subject.seed)
        for name in labels
        if (choices["edit"] == name).any()
    }
    rows = [
        MetricRow(
            f"{key}.{name}", values["accuracy"], f"{labels[name]} ({values['captions']:,})",
            (values["low"], values["high"]), {"chance": CHANCE}, unit="%", maximum=100.0,
        )
        for name, values in metrics.items()
    ]  # fmt: skip
    columns, wrong = ("edit", "caption", "preferred"), list(_wrong(choices, labels, shown))
    blocks = [metric_table("", rows), Table("Wrong choices", columns, wrong, wide=True, text=True)]
    return Result(title, {key: metrics}, rows=rows, sections=[Section(title, note, blocks)])


def score_margins(subject: Subject, choices: pd.DataFrame) -> NDArray[np.float64]:
    """Return, for each choice, the caption's score minus its edit's score."""
    images, texts = choices["image_id"].tolist(), [*choices["caption"], *choices["edited"]]
    of_caption, of_edit = np.split(pair_scores(subject, images + images, texts), 2)
    margins: NDArray[np.float64] = of_caption - of_edit
    return margins


def _wrong(choices: pd.DataFrame, labels: Mapping[str, str], shown: int) -> Iterator[tuple[str, str, str]]:
    """Yield the worst choices of each kind of edit."""
    for name, rows in choices[choices["correct"] == 0].groupby("edit", sort=False):
        for row in rows.sort_values("margin").head(shown).itertuples():
            yield labels[str(name)], str(row.caption), str(row.edited)


def _accuracy(choices: pd.DataFrame, resamples: int, seed: int) -> dict[str, Any]:
    """Return the accuracy in percent, its 95 % interval, and the number of captions."""
    values = 100 * choices["correct"].to_numpy(np.float64)
    low, high = mean_interval(values, list(choices["image_id"]), resamples=resamples, seed=seed)
    return {"accuracy": float(values.mean()), "low": low, "high": high, "captions": len(choices)}
