"""Languages of captions, guessed by langdetect."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

SAMPLE = 500
"""Images whose captions are read together: a language is hardly recognized from five words."""


def caption_languages(
    captions_by_image: Sequence[Sequence[str]], seed: int = 0
) -> dict[str, float]:
    """Return the share of images by caption language (ISO 639-1 or "unknown"), in at most
    ``SAMPLE`` drawn images."""
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
