"""Languages of captions, guessed by langdetect."""

from collections import Counter
from collections.abc import Sequence

from bifocal.draws import drawn_rows

SAMPLE = 500
"""Images whose captions are read together: a language is hardly recognized from five words."""


def caption_languages(
    captions_by_image: Sequence[Sequence[str]], seed: int = 0
) -> dict[str, float]:
    """Return the share of images by caption language (ISO 639-1 or "unknown"), in at most
    ``SAMPLE`` drawn images."""
    from langdetect import DetectorFactory, LangDetectException, detect  # an extra

    DetectorFactory.seed = 0
    texts = [" ".join(captions) for captions in captions_by_image]
    drawn = drawn_rows(texts, SAMPLE, seed)
    counts: Counter[str] = Counter()
    for row in drawn:
        try:
            counts[detect(texts[row])] += 1
        except LangDetectException:
            counts["unknown"] += 1
    return {language: count / len(drawn) for language, count in counts.most_common()}
