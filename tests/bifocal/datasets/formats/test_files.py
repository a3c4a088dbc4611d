"""Streamed lists of JSON objects against the parser of whole files."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bifocal.datasets.corpora import COCO, Flickr30k
from bifocal.datasets.formats import files
from bifocal.datasets.formats.files import stream_json_list
from tests.bifocal.datasets.corpora.entries import UNUSED, problems, splits, texts

OBJECTS = st.lists(
    st.dictionaries(
        st.text(max_size=4), st.integers() | st.text(max_size=9) | st.none(), max_size=3
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=OBJECTS, indent=st.sampled_from([None, 2]), chunk=st.integers(1, 20))
def test_streamed_entries_are_those_of_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: list[dict[str, object]],
    indent: int | None,
    chunk: int,
) -> None:
    path = tmp_path / "entries.json"
    path.write_text(f"\n {json.dumps(entries, indent=indent)}\n")
    monkeypatch.setattr(files, "CHUNK", chunk)
    assert list(stream_json_list(path, "VisualGenome")) == json.loads(path.read_text())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "expected a list of objects"),
        ('[{"a": 1} {"b": 2}]', "expected a list of objects"),
        ('[{"a": 1}, {"b"', "is not JSON"),
        ("", "expected a list of objects"),
    ],
)
def test_other_files_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "entries.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        list(stream_json_list(path, "VisualGenome"))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"VisualGenome needs .*none\.json: no such file"):
        next(stream_json_list(tmp_path / "none.json", "VisualGenome"))


def karpathy(split: str, number: int, **more: object) -> dict[str, object]:
    sentences = [
        {"tokens": ["a", "dog"], "raw": f"A dog {n}.", "imgid": number, "sentid": 5 * number + n}
        for n in range(5)
    ]
    name = f"{number}.jpg"
    return {
        "sentids": [],
        "imgid": number,
        "sentences": sentences,
        "split": split,
        "filename": name,
    } | more


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
            [
                ("train", "train2014"),
                ("restval", "val2014"),
                ("val", "val2014"),
                ("test", "val2014"),
            ]
        )
    ]
    write_karpathy(tmp_path / "dataset_coco.json", images)
    return tmp_path


def test_coco_adds_restval_to_train(coco):
    corpus = COCO(coco).read(UNUSED)
    assert splits(corpus) == {"1000": "train", "1001": "train", "1002": "val", "1003": "test"}
    assert [image.path for image in corpus.images] == [
        "train2014/0.jpg",
        *(f"val2014/{n}.jpg" for n in (1, 2, 3)),
    ]
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
    ],
)
def test_invalid_karpathy_file_is_rejected(tmp_path, content, message):
    (tmp_path / "dataset_coco.json").write_text(content)
    with pytest.raises(ValueError, match=rf"dataset_coco\.json.*{message}"):
        COCO(tmp_path).read(UNUSED)


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ({"split": "train"}, "dataset_coco.json, entry 1: no 'filename'"),
        (karpathy("train", 0) | {"sentences": [{"raw": "x"}]}, "entry 1: no 'sentid'"),
        (karpathy("dev", 0), "split 'dev', expected train, val, test or restval"),
        (None, "dataset_coco.json, entry 1: not in the published format: None"),
    ],
)
def test_an_image_of_karpathy_that_cannot_be_read_is_listed(tmp_path, image, problem):
    (tmp_path / "dataset_coco.json").write_text(
        json.dumps({"images": [image, karpathy("train", 1)]})
    )
    corpus = COCO(tmp_path).read(UNUSED)
    (found,) = problems(corpus)
    assert problem in found
    assert karpathy("train", 1)["filename"] in str(corpus.images[-1].path)
