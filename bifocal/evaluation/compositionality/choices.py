"""Choices between a caption and its edit, given the image: scores, accuracy by kind of edit, and
wrong ones."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from bifocal.evaluation.base import Result, Subject
from bifocal.features import RegionBatch
from bifocal.metrics.bootstrap import mean_interval
from bifocal.models.batch import BATCH, to_device
from bifocal.models.phrase_locator import embed_texts
from bifocal.report.sections import MetricRow, Section, Table, metric_table

TIE = 1e-5
"""Difference of two scores up to which they are equal: sums of the same numbers in another order
differ by less."""
CHANCE = 50.0
IMAGES_PER_BLOCK = 32


def choice_result(
    title: str,
    key: str,
    choices: pd.DataFrame,
    labels: Mapping[str, str],
    subject: Subject,
    note: str,
) -> Result:
    """Return the accuracy of ``subject`` by edit, under ``key``; equal scores count half.

    Args:
        choices: image_id, edit, caption and edited, one row per choice.
        labels: names of the edits for readers, in the order of the table.
    """
    choices = choices.assign(margin=score_margins(subject, choices))
    choices["correct"] = np.where(
        choices["margin"].abs() <= TIE, 0.5, choices["margin"] > 0
    ).astype(np.float64)
    metrics = {
        name: _accuracy(choices[choices["edit"] == name], subject)
        for name in labels
        if (choices["edit"] == name).any()
    }
    rows = [
        MetricRow(
            f"{key}.{name}",
            values["accuracy"],
            f"{labels[name]} ({values['captions']:,})",
            (values["low"], values["high"]),
            {"chance": CHANCE},
        )
        for name, values in metrics.items()
    ]
    columns, wrong = ("edit", "caption", "preferred"), list(_wrong(choices, labels, subject.shown))
    blocks = [metric_table("", rows), Table("Wrong choices", columns, wrong, wide=True, text=True)]
    return Result(title, {key: metrics}, rows=rows, sections=[Section(title, note, blocks)])


def score_margins(subject: Subject, choices: pd.DataFrame) -> NDArray[np.float64]:
    """Return, for each choice, the caption's score minus its edit's score."""
    images, texts = choices["image_id"].tolist(), [*choices["caption"], *choices["edited"]]
    of_caption, of_edit = np.split(pair_scores(subject, images + images, texts), 2)
    margins: NDArray[np.float64] = of_caption - of_edit
    return margins


def _wrong(
    choices: pd.DataFrame, labels: Mapping[str, str], shown: int
) -> Iterator[tuple[str, str, str]]:
    """Yield the worst choices of each kind of edit."""
    for name, rows in choices[choices["correct"] == 0].groupby("edit", sort=False):
        for row in rows.sort_values("margin").head(shown).itertuples():
            yield labels[str(name)], str(row.caption), str(row.edited)


def _accuracy(choices: pd.DataFrame, subject: Subject) -> dict[str, Any]:
    """Return the accuracy in percent, its 95 % interval, and the number of captions."""
    values = 100 * choices["correct"].to_numpy(np.float64)
    low, high = mean_interval(
        values, list(choices["image_id"]), resamples=subject.resamples, seed=subject.seed
    )
    return {"accuracy": float(values.mean()), "low": low, "high": high, "captions": len(choices)}


def pair_scores(
    subject: Subject, image_ids: Sequence[str], texts: Sequence[str]
) -> NDArray[np.float64]:
    """Return the score of each text with the image at the same place; both may repeat.

    Raises:
        ValueError: an image is not in the split of ``subject``.
    """
    row_of_image = {image_id: row for row, image_id in enumerate(subject.pairs.image_ids)}
    absent = sorted(set(image_ids) - row_of_image.keys())
    if absent:
        raise ValueError(
            f"{len(absent)} images are not in the split {subject.split_name}, such as {absent[0]}"
        )
    images = np.array([row_of_image[image_id] for image_id in image_ids], dtype=np.int64)
    if subject.image_embeddings is not None:
        row_of_text = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors = embed_texts(subject.model, subject.vectorizer, list(row_of_text)).cpu().double()
        encoded = normalize(subject.image_embeddings, dim=1)[torch.from_numpy(images)].double()
        rows = torch.tensor([row_of_text[text] for text in texts], dtype=torch.int64)
        scores: NDArray[np.float64] = (encoded * vectors[rows]).sum(dim=1).numpy()
        return scores
    scores = np.empty(len(texts))
    for block, regions in enumerate(subject.pairs.image_batches(IMAGES_PER_BLOCK)):
        chosen = np.flatnonzero(images // IMAGES_PER_BLOCK == block)
        first = block * IMAGES_PER_BLOCK
        scores[chosen] = _own_scores(
            subject, regions, images[chosen] - first, [texts[row] for row in chosen.tolist()]
        )
    return scores


def _own_scores(
    subject: Subject, regions: RegionBatch, images: NDArray[np.integer], sentences: Sequence[str]
) -> NDArray[np.float64]:
    """Return the score of each sentence with its image, a row of ``regions``, by a model without
    single vectors."""
    model: Any = subject.model
    model.eval()
    scores = []
    with torch.inference_mode():
        cells = model.embed_images(to_device(regions, model.device))
        for start in range(0, len(sentences), BATCH):
            batch = list(sentences[start : start + BATCH])
            captions = model.embed_captions(
                to_device(subject.vectorizer.vectorize(batch), model.device)
            )
            rows = torch.tensor(images[start : start + BATCH])
            scores.append(
                model.score(cells, captions).cross[rows, torch.arange(len(batch))].double().cpu()
            )
    return torch.cat(scores).numpy() if scores else np.empty(0)
