"""Views of a corpus for the tests of readers."""

from pathlib import Path

from bifocal.datasets.base import Corpus

UNUSED = Path("unused")
"""Output directory of readers that write no files."""


def splits(corpus: Corpus) -> dict[str, str]:
    return {image.image_id: image.split for image in corpus.images}


def texts(corpus: Corpus) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    for caption in corpus.captions:
        captions.setdefault(caption.image_id, []).append(caption.text)
    return captions


def problems(corpus: Corpus) -> list[str]:
    """Places and reasons of the broken entries."""
    assert not any(entry.intentional for entry in corpus.rejected)
    return [f"{entry.entry}: {entry.reason}" for entry in corpus.rejected]


def label_values(corpus: Corpus) -> dict[tuple[str, str], float | None]:
    return {(label.image_id, label.label): label.value for label in corpus.labels}
