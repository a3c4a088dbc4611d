"""A random part of a corpus."""

from collections import Counter
from pathlib import Path

import pytest

from bifocal import registry
from bifocal.datasets.corpora import Scenes, Subset


def test_splits_keep_their_shares_and_every_entry_its_image(tmp_path: Path) -> None:
    scenes = Scenes(train=40, val=12, test=2, size=64, seed=1)
    corpus = Subset(scenes, images=27, seed=3).read(tmp_path)
    assert Counter(image.split for image in corpus.images) == {"train": 20, "val": 6, "test": 2}
    ids = {image.image_id for image in corpus.images}
    assert {caption.image_id for caption in corpus.captions} == ids
    assert {entry.image_id for entry in (*corpus.phrases, *corpus.labels)} <= ids
    again = Subset(scenes, images=27, seed=3).read(tmp_path)
    assert [image.image_id for image in again.images] == [image.image_id for image in corpus.images]
    other = Subset(scenes, images=27, seed=4).read(tmp_path)
    assert {image.image_id for image in other.images} != ids
    whole = Subset(scenes, images=1000).read(tmp_path)
    assert len(whole.images) == 54


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="Subset: images is 0, expected 1 or more"):
        Subset(images=0)
    with pytest.raises(ValueError, match="Subset needs corpus"):
        Subset().read(Path("unused"))


def test_a_reference_names_the_corpus(tmp_path: Path) -> None:
    ref = {
        "name": "Subset",
        "images": 6,
        "corpus": {"name": "Scenes", "train": 10, "val": 2, "test": 2, "size": 64},
    }
    corpus = registry.build("bifocal.datasets.corpora", ref, seed=1).read(tmp_path)
    assert len(corpus.images) == 4 + 2 + 2
