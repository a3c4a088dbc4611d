"""Languages of captions, guessed by langdetect."""

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

SAMPLE = 500
"""Images whose captions are read together: a language is hardly recognized from five words."""
GROUP = 10
"""Captions that are one text for the languages of a collection."""
RARE = 0.05
"""Share of the texts below which a language is not named."""


def caption_languages(captions_by_image: Sequence[Sequence[str]], seed: int = 0) -> dict[str, float]:
    """Return the share of images by caption language (ISO 639-1 or "unknown"), in at most ``SAMPLE`` drawn images."""
    from langdetect import DetectorFactory, LangDetectException, detect  # an extra

    DetectorFactory.seed = 0
    order = np.random.default_rng(seed).permutation(len(captions_by_image))[:SAMPLE]
    counts: Counter[str] = Counter()
    for row in order:
        try:
            counts[detect(" ".join(captions_by_image[row]))] += 1
        except LangDetectException:
            counts["unknown"] += 1
    return {language: count / len(order) for language, count in counts.most_common()}


def main_languages(captions_by_image: Sequence[Sequence[str]]) -> list[str]:
    """Return the languages (ISO 639-1) of captions, the most frequent first; empty without langdetect."""
    first = [captions[0] for captions in captions_by_image if captions]
    if not first or find_spec("langdetect") is None:
        return []
    groups = [first[start : start + GROUP] for start in range(0, len(first), GROUP)]
    return [code for code, share in caption_languages(groups).items() if share >= RARE and code != "unknown"]
