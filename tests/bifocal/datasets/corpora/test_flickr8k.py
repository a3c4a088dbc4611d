"""Flickr8k on small files in the published format."""

from collections import Counter
from pathlib import Path

import pytest

from bifocal.datasets.corpora import Flickr8k
from tests.bifocal.datasets.corpora.entries import UNUSED, problems, splits, texts


@pytest.fixture
def flickr8k(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (tmp_path / "images" / name).touch()
    lines = [
        f"{name}#{n}\tA dog {n} of {name} ."
        for name in ("1.jpg", "2.jpg", "3.jpg", "9.jpg.1")
        for n in range(5)
    ]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "Flickr_8k.trainImages.txt").write_text("2.jpg\n")
    (tmp_path / "Flickr_8k.devImages.txt").write_text("1.jpg\n")
    return tmp_path


def test_flickr8k_reads_captions_and_lists(flickr8k):
    corpus = Flickr8k(flickr8k).read(UNUSED)
    assert splits(corpus) == {"2.jpg": "train", "1.jpg": "val"}
    assert texts(corpus)["2.jpg"] == [f"A dog {n} of 2.jpg ." for n in range(5)]
    assert all((corpus.image_root / str(image.path)).is_file() for image in corpus.images)
    assert len({caption.caption_id for caption in corpus.captions}) == len(corpus.captions)


def test_flickr8k_excludes_images_outside_all_lists(flickr8k):
    excluded = Flickr8k(flickr8k).read(UNUSED).excluded
    assert Counter(entry.kind for entry in excluded) == {"image": 1, "caption": 10}
    assert all(entry.intentional for entry in excluded)
    reason = "in none of the lists Flickr_8k.trainImages.txt, Flickr_8k.devImages.txt"
    assert [(entry.entry, entry.reason) for entry in excluded if entry.kind == "image"] == [
        ("3.jpg", reason)
    ]


def test_flickr8k_names_the_invalid_file(flickr8k):
    with pytest.raises(ValueError, match="argument images"):
        Flickr8k(flickr8k, images="Flicker8k_Dataset").read(UNUSED)
    tokens = flickr8k / "Flickr8k.token.txt"
    tokens.write_text("1.jpg#0\tA dog .\n1.jpg A cat .\n")
    (problem,) = problems(Flickr8k(flickr8k).read(UNUSED))
    assert (
        problem
        == "Flickr8k.token.txt, line 2: '1.jpg A cat .', expected name.jpg#number<tab>caption"
    )
    tokens.write_bytes(b"1.jpg#0\t\xff\xfe\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        Flickr8k(flickr8k).read(UNUSED)
    tokens.unlink()
    with pytest.raises(ValueError, match=r"needs .*token\.txt: no such file"):
        Flickr8k(flickr8k).read(UNUSED)


def test_flickr8k_needs_a_list(flickr8k):
    for path in flickr8k.glob("Flickr_8k.*Images.txt"):
        path.unlink()
    with pytest.raises(ValueError, match="none of the lists"):
        Flickr8k(flickr8k).read(UNUSED)
