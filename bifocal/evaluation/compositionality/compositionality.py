"""Compositionality: does an image fit its caption better than an edit with the same, or almost the same, words?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.compositionality.caption_edits import RULES, edits
from bifocal.features import RegionBatch
from bifocal.localization.phrase_locator import embed_texts
from bifocal.metrics.bootstrap import mean_interval
from bifocal.models.batch import to_device
from bifocal.models.embedding import BATCH
from bifocal.report.metric_rows import MetricRow, metric_table
from bifocal.report.sections import Section, Table

IMAGES_PER_BLOCK = 32
TIE = 1e-5
"""Difference of two scores up to which they are equal: sums of the same numbers in another order differ by less."""
CHANCE = 50.0
LABELS: Mapping[str, str] = {
    "attributes": "attributes exchanged",
    "nouns": "nouns exchanged",
    "relation": "opposite relation",
    "count": "another count",
    "negation": "negation",
    "order": "words shuffled",
}
SHOWN = 6


class Compositionality:
    """Accuracy of choosing between a caption and its minimal edit, given the image, by kind of edit.

    As in ARO (Yuksekgonul et al., "When and why vision-language models behave like bags-of-words", ICLR 2023) and
    Winoground (Thrush et al., CVPR 2022). Rules make the edits. Equal scores count half, so a bag-of-words model has
    exactly 50 % where an edit keeps the words.

    Args:
        bootstrap_resamples: of the images, for the 95 % intervals.
        shown_queries: wrong choices in the report, of each kind of edit.
    """

    title = "Compositionality"

    def __init__(self, bootstrap_resamples: int = 1000, shown_queries: int = SHOWN) -> None:
        self.resamples, self.shown = bootstrap_resamples, shown_queries

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped if no rule applies to its captions."""
        choices = edited_captions(subject.split.captions)
        if choices.empty:
            return Result(self.title, skipped="No rule of the edits applies to the captions.")
        choices = choices.assign(margin=score_margins(subject, choices))
        choices["correct"] = np.where(choices["margin"].abs() <= TIE, 0.5, choices["margin"] > 0).astype(np.float64)
        metrics = {
            name: _accuracy(choices[choices["edit"] == name], self.resamples, subject.seed)
            for name in RULES
            if (choices["edit"] == name).any()
        }
        rows = [
            MetricRow(
                f"compositionality.{name}", values["accuracy"], f"{LABELS[name]} ({values['captions']:,})",
                (values["low"], values["high"]), {"chance": CHANCE}, unit="%", maximum=100.0,
            )
            for name, values in metrics.items()
        ]  # fmt: skip
        note = (
            "Percentage of captions that fit their image better than the edit of the caption does; in brackets, the "
            "number of captions with this edit. A model of bags of words has 50 % where an edit keeps all words: "
            "exchanged attributes and nouns, and shuffled words."
        )
        columns, wrong = ("edit", "caption", "preferred"), list(self._wrong(choices))
        blocks = [metric_table("", rows), Table("Wrong choices", columns, wrong, wide=True, text=True)]
        return Result(
            self.title,
            {"compositionality": metrics},
            rows=rows,
            sections=[Section(self.title, note, blocks)],
        )

    def _wrong(self, choices: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
        """Yield the worst choices of each kind of edit."""
        for name, rows in choices[choices["correct"] == 0].groupby("edit", sort=False):
            for row in rows.sort_values("margin").head(self.shown).itertuples():
                yield LABELS[str(name)], str(row.caption), str(row.edited)


def edited_captions(captions: pd.DataFrame) -> pd.DataFrame:
    """Return image_id, edit, caption and edited of each caption and each rule that applies to it."""
    rows = [
        (image_id, name, caption, edited)
        for image_id, text in zip(captions["image_id"], captions["text"], strict=True)
        for caption, changed in [edits(text)]
        for name, edited in changed.items()
    ]
    return pd.DataFrame(rows, columns=["image_id", "edit", "caption", "edited"])


def score_margins(subject: Subject, choices: pd.DataFrame) -> NDArray[np.float64]:
    """Return, for each row of ``edited_captions``, the caption's score minus its edit's score."""
    row_of_image = {image_id: row for row, image_id in enumerate(subject.pairs.image_ids)}
    images = choices["image_id"].map(row_of_image).to_numpy()
    texts = sorted({*choices["caption"], *choices["edited"]})
    row_of_text = {text: row for row, text in enumerate(texts)}
    captions, edited = (choices[name].map(row_of_text).to_numpy() for name in ("caption", "edited"))
    if subject.image_embeddings is not None:
        encoded = normalize(subject.image_embeddings, dim=1)[torch.tensor(images)].double()
        vectors = embed_texts(subject.model, subject.vectorizer, texts).cpu().double()
        difference = vectors[torch.tensor(captions)] - vectors[torch.tensor(edited)]
        margins: NDArray[np.float64] = (encoded * difference).sum(dim=1).numpy()
        return margins
    margins = np.empty(len(choices))
    for block, regions in enumerate(subject.pairs.image_batches(IMAGES_PER_BLOCK)):
        first = block * IMAGES_PER_BLOCK
        rows = np.flatnonzero(images // IMAGES_PER_BLOCK == block)
        of_caption, of_edit = (
            _own_scores(subject, regions, images[rows] - first, [texts[row] for row in names[rows]])
            for names in (captions, edited)
        )
        margins[rows] = of_caption - of_edit
    return margins


def _own_scores(
    subject: Subject, regions: RegionBatch, images: NDArray[np.integer], sentences: Sequence[str]
) -> NDArray[np.float64]:
    """Return the score of each sentence with its image, a row of ``regions``, by a model without single vectors."""
    model: Any = subject.model
    model.eval()
    scores = []
    with torch.inference_mode():
        cells = model.embed_images(to_device(regions, model.device))
        for start in range(0, len(sentences), BATCH):
            batch = list(sentences[start : start + BATCH])
            captions = model.embed_captions(to_device(subject.vectorizer.vectorize(batch), model.device))
            rows = torch.tensor(images[start : start + BATCH])
            scores.append(model.score(cells, captions).cross[rows, torch.arange(len(batch))].double().cpu())
    return torch.cat(scores).numpy() if scores else np.empty(0)


def _accuracy(choices: pd.DataFrame, resamples: int, seed: int) -> dict[str, float]:
    """Return the accuracy in percent, its 95 % interval, and the number of captions."""
    values = 100 * choices["correct"].to_numpy(np.float64)
    low, high = mean_interval(values, list(choices["image_id"]), resamples=resamples, seed=seed)
    return {"accuracy": float(values.mean()), "low": low, "high": high, "captions": len(choices)}
