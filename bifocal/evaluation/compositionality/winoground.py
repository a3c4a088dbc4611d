"""Winoground: two images and two captions of the same words."""

from pathlib import Path

import numpy as np

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.corpora.winoground import read_examples
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.compositionality.choices import pair_scores
from bifocal.metrics.bootstrap import mean_interval
from bifocal.report.sections import MetricRow, Section, metric_table

CHANCE = {"text": 25.0, "image": 25.0, "group": 100 / 6}
"""Percentages of random scores."""
LABELS = {
    "text": "right caption for each image",
    "image": "right image for each caption",
    "group": "both",
}


class Winoground:
    """Text, image and group score of examples with two images and two captions of the same words.

    Thrush et al., "Winoground: probing vision and language models for visio-linguistic
    compositionality", CVPR 2022, eq. (1)-(3). An example counts if each image prefers its own
    caption (text), each caption its own image (image), or both (group). Equal scores do not count:
    a bag of words has a text score of 0.

    Args:
        examples: ``examples.jsonl``, as published; None skips the evaluator. The corpus
            ``Winoground`` has its images.
    """

    title = "Winoground"

    def __init__(self, examples: Path | str | None = None) -> None:
        self.examples = examples

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; raise ``ValueError`` if its split lacks an image of an example."""
        if self.examples is None:
            return Result(self.title, skipped="No examples: give examples.jsonl of Winoground.")
        rejected: list[RejectedEntry] = []
        examples = read_examples(Path(self.examples), rejected)
        if not examples:
            first = f"{rejected[0].entry}: {rejected[0].reason}" if rejected else "it is empty"
            raise ValueError(f"{self.examples} has no example of Winoground: {first}")
        images = [image for example in examples for image in example.images for _ in range(2)]
        texts = [text for example in examples for _ in range(2) for text in example.captions]
        # (example, image, caption)
        scores = pair_scores(subject, images, texts).reshape(-1, 2, 2)
        own, other = np.diagonal(scores, axis1=1, axis2=2), scores[:, [0, 1], [1, 0]]
        right = {"text": (own > other).all(axis=1), "image": (own > other[:, ::-1]).all(axis=1)}
        right["group"] = right["text"] & right["image"]
        names = [example.name for example in examples]
        metrics, rows = {}, []
        for name, correct in right.items():
            values = np.where(correct, 100.0, 0.0)
            low, high = mean_interval(values, names, resamples=subject.resamples, seed=subject.seed)
            tags = {
                tag: float(values[[example.tag == tag for example in examples]].mean())
                for tag in sorted({example.tag for example in examples})
            }
            metrics[name] = {"score": float(values.mean()), "low": low, "high": high, "tags": tags}
            rows.append(
                MetricRow(
                    f"winoground.{name}",
                    float(values.mean()),
                    f"{name.capitalize()} score: {LABELS[name]}",
                    (low, high),
                    {"chance": CHANCE[name]},
                    unit="%",
                    maximum=100.0,
                    headline=name == "group",
                )
            )
        note = f"Percentage of {len(examples):,} examples. Equal scores do not count."
        section = Section(self.title, note, [metric_table("", rows)])
        return Result(
            self.title,
            {"winoground": metrics | {"examples": len(examples)}},
            rows=rows,
            sections=[section],
        )
