"""Combined: each split from a corpus of its own."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bifocal.datasets.base import (
    CaptionEntry,
    Corpus,
    CorpusReader,
    ImageEntry,
    LabelEntry,
    PhraseEntry,
    RejectedEntry,
)
from bifocal.datasets.corpora import Combined

UNUSED = Path("unused")


@dataclass
class Streets:
    """One image per split, all with the ids 1, 2, 3."""

    folder: Path

    def read(self, output_dir: Path) -> Corpus:
        name, splits = type(self).__name__, ("train", "val", "test")
        images = [
            ImageEntry(str(number), f"{number}.jpg", split)
            for number, split in enumerate(splits, start=1)
        ]
        return Corpus(
            self.folder,
            images,
            [
                CaptionEntry(10 + int(image.image_id), image.image_id, f"{name} {image.split}")
                for image in images
            ],
            [
                PhraseEntry(image.image_id, 10 + int(image.image_id), name, ((0, 0, 1, 1),))
                for image in images
            ],
            [RejectedEntry("phrase", name, "no box", intentional=True)],
            [LabelEntry(image.image_id, "task", name, 1.0) for image in images],
        )


class Gardens(Streets):
    """The same ids as ``Streets``."""


def combined(tmp_path: Path, **readers: CorpusReader) -> Corpus:
    return Combined(**readers).read(tmp_path)


def test_combined_takes_each_split_from_its_own_corpus(tmp_path: Path) -> None:
    gardens = Gardens(tmp_path / "b" / "images")
    corpus = combined(tmp_path, train=Streets(tmp_path / "a"), val=gardens, test=gardens)
    assert [(image.image_id, image.split, image.path) for image in corpus.images] == [
        ("Streets/1", "train", "a/1.jpg"),
        ("Gardens/2", "val", "b/images/2.jpg"),
        ("Gardens/3", "test", "b/images/3.jpg"),
    ]
    assert corpus.image_root == tmp_path
    ids = [image.image_id for image in corpus.images]
    assert [caption.text for caption in corpus.captions] == [
        "Streets train",
        "Gardens val",
        "Gardens test",
    ]
    assert [caption.caption_id for caption in corpus.captions] == [0, 1, 2]
    for entries in (corpus.captions, corpus.phrases, corpus.labels):
        assert [entry.image_id for entry in entries] == ids
    assert [phrase.caption_id for phrase in corpus.phrases] == [0, 1, 2]
    assert [entry.entry for entry in corpus.excluded] == ["Streets", "Gardens"]


def test_combined_of_one_split_has_the_root_of_its_corpus(tmp_path: Path) -> None:
    corpus = combined(tmp_path, test=Gardens(tmp_path / "b"))
    assert (corpus.image_root, [image.path for image in corpus.images]) == (
        tmp_path / "b",
        ["3.jpg"],
    )


def test_combined_rejects_a_missing_split(tmp_path: Path) -> None:
    class Ruins(Streets):
        def read(self, output_dir: Path) -> Corpus:
            corpus = super().read(output_dir)
            return Corpus(corpus.image_root, corpus.images[:1], corpus.captions[:1])

    with pytest.raises(ValueError, match="Ruins has no image in the split val"):
        combined(tmp_path, train=Streets(tmp_path), val=Ruins(tmp_path))
    with pytest.raises(ValueError, match="needs the reader of at least one of train, val and test"):
        Combined().read(UNUSED)
