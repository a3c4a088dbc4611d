"""What the tests of readers look at in a corpus."""

from pathlib import Path

from bifocal.datasets.base import Corpus

NOWHERE = Path("unused")


def splits(corpus: Corpus) -> dict[str, str]:
    return {image.image_id: image.split for image in corpus.images}


def texts(corpus: Corpus) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for caption in corpus.captions:
        found.setdefault(caption.image_id, []).append(caption.text)
    return found
