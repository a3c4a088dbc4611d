"""COCO's own files."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bifocal.datasets.corpora import COCOInstances
from tests.bifocal.datasets.corpora import NOWHERE, splits, texts


def write_coco(root: Path, part: str, ids: range, crowd: bool = False) -> None:
    folder = root / "annotations"
    folder.mkdir(exist_ok=True)
    images = [{"id": n, "file_name": f"{n:012d}.jpg", "width": 640, "height": 480} for n in ids]
    captions = [{"image_id": n, "id": 10 * n + k, "caption": f"A dog {k}.\n"} for n in ids for k in range(5)]
    boxes = [
        {"image_id": n, "category_id": category, "bbox": [10.5, 20, 30, 40 + k], "iscrowd": 0, "id": 0}
        for n in ids
        for k, category in enumerate((1, 18, 1))
    ]
    if crowd:
        boxes.append({"image_id": ids[0], "category_id": 1, "bbox": [0, 0, 600, 400], "iscrowd": 1, "id": 0})
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    (folder / f"captions_{part}.json").write_text(json.dumps({"images": images, "annotations": captions}))
    (folder / f"instances_{part}.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": categories})
    )


def test_coco_instances_makes_one_phrase_of_a_category(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 2), crowd=True)
    corpus = COCOInstances(tmp_path, val=0.0).read(NOWHERE)
    phrases = {phrase.phrase: phrase for phrase in corpus.phrases}
    assert phrases["person"].boxes == ((10.5, 20, 40.5, 60), (10.5, 20, 40.5, 62))
    assert phrases["dog"].boxes == ((10.5, 20, 40.5, 61),)
    assert {phrase.caption_id for phrase in corpus.phrases} == {None}
    assert {phrase.category for phrase in corpus.phrases} == {"person", "dog"}
    assert [(refusal.what, refusal.by_design) for refusal in corpus.left_out] == [("'person' of 1", True)]
    assert corpus.images[0].size == (640, 480)


def test_coco_instances_reads_a_part_for_a_split(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 4))
    write_coco(tmp_path, "val2017", range(4, 6))
    corpus = COCOInstances(tmp_path).read(NOWHERE)
    assert splits(corpus) == {"1": "train", "2": "train", "3": "train", "4": "val", "5": "val"}
    assert corpus.images[3].path == "val2017/000000000004.jpg"
    assert len(texts(corpus)["5"]) == 5


def test_coco_instances_draws_fractions_with_the_seed(tmp_path):
    write_coco(tmp_path, "train2017", range(40))

    def drawn(seed: int) -> dict[str, str]:
        return splits(COCOInstances(tmp_path, val=0.25, test=0.1, seed=seed).read(NOWHERE))

    first = drawn(1)
    assert Counter(first.values()) == {"train": 26, "val": 10, "test": 4}
    assert drawn(1) == first
    assert drawn(2) != first
    write_coco(tmp_path, "train2017", range(39, -1, -1))
    assert drawn(1) == first  # whatever the order in the file


@pytest.mark.parametrize("fractions", [{"val": -0.1}, {"val": 0.5, "test": 0.5}])
def test_coco_instances_refuses_impossible_fractions(fractions):
    with pytest.raises(ValueError, match="together less than 1"):
        COCOInstances(**fractions)


def test_coco_instances_says_what_is_wrong(tmp_path):
    write_coco(tmp_path, "train2017", range(2))
    with pytest.raises(ValueError, match=r"captions_val2017\.json: no such file"):
        COCOInstances(tmp_path).read(NOWHERE)
    path = tmp_path / "annotations" / "instances_train2017.json"
    path.write_text(json.dumps({"annotations": [{"image_id": 1, "category_id": 7}], "categories": []}))
    with pytest.raises(ValueError, match=r"instances_train2017\.json is not in COCO's format: KeyError 7"):
        COCOInstances(tmp_path, val=0.0).read(NOWHERE)
