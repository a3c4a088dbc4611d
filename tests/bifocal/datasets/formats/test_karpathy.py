"""Karpathy's files of Flickr30k and COCO."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bifocal.datasets.corpora import COCO, Flickr30k
from tests.bifocal.datasets.corpora.entries import UNUSED, splits, texts


def karpathy(split: str, number: int, **more: object) -> dict[str, object]:
    sentences = [
        {"tokens": ["a", "dog"], "raw": f"A dog {n}.", "imgid": number, "sentid": 5 * number + n} for n in range(5)
    ]
    name = f"{number}.jpg"
    return {"sentids": [], "imgid": number, "sentences": sentences, "split": split, "filename": name} | more


def write_karpathy(path: Path, images: list[dict[str, object]]) -> None:
    path.write_text(json.dumps({"images": images, "dataset": path.stem}))


def test_flickr30k_reads_karpathys_file(tmp_path):
    write_karpathy(
        tmp_path / "dataset_flickr30k.json",
        [karpathy(split, number) for number, split in enumerate(("train", "test", "val", "train"))],
    )
    corpus = Flickr30k(tmp_path, images="flickr30k-images").read(UNUSED)
    assert splits(corpus) == {"0.jpg": "train", "1.jpg": "test", "2.jpg": "val", "3.jpg": "train"}
    assert corpus.image_root == tmp_path / "flickr30k-images"
    assert [image.path for image in corpus.images] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]
    assert texts(corpus)["3.jpg"] == [f"A dog {n}." for n in range(5)]
    assert [caption.caption_id for caption in corpus.captions] == list(range(20))


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    images = [
        karpathy(split, number, filepath=folder, cocoid=1000 + number)
        for number, (split, folder) in enumerate(
            [("train", "train2014"), ("restval", "val2014"), ("val", "val2014"), ("test", "val2014")]
        )
    ]
    write_karpathy(tmp_path / "dataset_coco.json", images)
    return tmp_path


def test_coco_adds_restval_to_train(coco):
    corpus = COCO(coco).read(UNUSED)
    assert splits(corpus) == {"1000": "train", "1001": "train", "1002": "val", "1003": "test"}
    assert [image.path for image in corpus.images] == ["train2014/0.jpg", *(f"val2014/{n}.jpg" for n in (1, 2, 3))]
    assert not corpus.excluded


def test_coco_excludes_restval(coco):
    corpus = COCO(coco, restval=False).read(UNUSED)
    assert set(splits(corpus)) == set(texts(corpus)) == {"1000", "1002", "1003"}
    assert Counter(entry.kind for entry in corpus.excluded) == {"image": 1, "caption": 5}
    assert all(entry.intentional for entry in corpus.excluded)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object with a list 'images'"),
        (json.dumps({"images": [{"split": "train"}]}), "image 0 has no valid filename"),
        (json.dumps({"images": [karpathy("train", 0) | {"sentences": [{"raw": "x"}]}]}), "KeyError 'sentid'"),
        (json.dumps({"images": [karpathy("dev", 0)]}), "has split 'dev', expected"),
    ],
)
def test_invalid_karpathy_file_is_rejected(tmp_path, content, message):
    (tmp_path / "dataset_coco.json").write_text(content)
    with pytest.raises(ValueError, match=rf"dataset_coco\.json.*{message}"):
        COCO(tmp_path).read(UNUSED)
