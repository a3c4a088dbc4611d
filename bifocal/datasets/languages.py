"""Languages of captions, guessed by langdetect."""

import re
from collections import Counter
from collections.abc import Sequence

from bifocal.draws import drawn

SAMPLE = 500
WORDS = 5
"""Minimum number of words to recognize a language; one sign of Chinese, Japanese or Korean is
enough."""
_SIGN = re.compile("[\u2e80-\U0003ffff]")


def caption_languages(captions_by_image: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the share of images by caption language (ISO 639-1 or "unknown"), in at most
    ``SAMPLE`` drawn images; none if all captions are too short."""
    from langdetect import DetectorFactory, LangDetectException, detect  # an extra

    DetectorFactory.seed = 0
    joined = (" ".join(captions) for captions in captions_by_image)
    texts = [text for text in joined if len(text.split()) >= WORDS or _SIGN.search(text)]
    counts: Counter[str] = Counter()
    for text in drawn(texts, SAMPLE, 0):
        try:
            counts[detect(text)] += 1
        except LangDetectException:
            counts["unknown"] += 1
    total = counts.total()
    return {language: count / total for language, count in counts.most_common()}
