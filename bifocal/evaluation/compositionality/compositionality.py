"""Compositionality: does an image fit its caption better than an edit with the same, or almost the same, words?"""

from collections.abc import Mapping

import pandas as pd

from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.compositionality.caption_edits import edits
from bifocal.evaluation.compositionality.choices import choice_result

LABELS: Mapping[str, str] = {
    "attributes": "attributes exchanged",
    "nouns": "nouns exchanged",
    "relation": "opposite relation",
    "count": "another count",
    "negation": "negation",
    "order": "words shuffled",
}


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

    def __init__(self, bootstrap_resamples: int = 1000, shown_queries: int = 6) -> None:
        self.resamples, self.shown = bootstrap_resamples, shown_queries

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped if no rule applies to its captions."""
        choices = edited_captions(subject.split.captions)
        if choices.empty:
            return Result(self.title, skipped="No rule of the edits applies to the captions.")
        note = (
            "Percentage of captions that fit their image better than the edit of the caption does; in brackets, the "
            "number of captions with this edit. A model of bags of words has 50 % where an edit keeps all words: "
            "exchanged attributes and nouns, and shuffled words."
        )
        return choice_result(
            self.title, "compositionality", choices, LABELS, subject, note, resamples=self.resamples, shown=self.shown
        )


def edited_captions(captions: pd.DataFrame) -> pd.DataFrame:
    """Return image_id, edit, caption and edited of each caption and each rule that applies to it."""
    rows = [
        (image_id, name, caption, edited)
        for image_id, text in zip(captions["image_id"], captions["text"], strict=True)
        for caption, changed in [edits(text)]
        for name, edited in changed.items()
    ]
    return pd.DataFrame(rows, columns=["image_id", "edit", "caption", "edited"])
