"""COCOInstances on small files in the published format."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bifocal.datasets.corpora import COCOInstances
from bifocal.datasets.formats.masks import decode_mask
from tests.bifocal.datasets.corpora.entries import UNUSED, problems, splits, texts


def write_coco(root: Path, name: str, ids: range, crowd: bool = False) -> None:
    folder = root / "annotations"
    folder.mkdir(exist_ok=True)
    images = [{"id": n, "file_name": f"{n:012d}.jpg", "width": 640, "height": 480} for n in ids]
    captions = [
        {"image_id": n, "id": 10 * n + k, "caption": f"A dog {k}.\n"} for n in ids for k in range(5)
    ]
    boxes = [
        {
            "image_id": n,
            "category_id": category,
            "bbox": [10.5, 20, 30, 40 + k],
            "iscrowd": 0,
            "id": 0,
        }
        | {"segmentation": [[10.5, 20, 40.5, 20, 40.5, 60 + k, 10.5, 60 + k]]}
        for n in ids
        for k, category in enumerate((1, 18, 1))
    ]
    if crowd:
        runs = {"size": [480, 640], "counts": [0, 480, 639 * 480]}  # the first column
        crowd_region = {"bbox": [0, 0, 1, 480], "segmentation": runs, "iscrowd": 1, "id": 0}
        boxes.append({"image_id": ids[0], "category_id": 1} | crowd_region)
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    (folder / f"captions_{name}.json").write_text(
        json.dumps({"images": images, "annotations": captions})
    )
    (folder / f"instances_{name}.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": categories})
    )


def test_coco_instances_reads_one_phrase_per_category(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 2), crowd=True)
    corpus = COCOInstances(tmp_path, val=0.0).read(UNUSED)
    phrases = {phrase.phrase: phrase for phrase in corpus.phrases}
    assert phrases["person"].boxes == ((10.5, 20, 40.5, 60), (10.5, 20, 40.5, 62))
    assert phrases["dog"].boxes == ((10.5, 20, 40.5, 61),)
    assert {phrase.caption_id for phrase in corpus.phrases} == {None}
    assert {phrase.category for phrase in corpus.phrases} == {"person", "dog"}
    assert [(entry.entry, entry.intentional) for entry in corpus.excluded] == [
        ("'person' of 1", True)
    ]
    assert corpus.images[0].size == (640, 480)


def test_coco_instances_reads_the_union_of_segmentations_and_crowds_as_mask(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 2), crowd=True)
    masks = {
        phrase.phrase: phrase.mask
        for phrase in COCOInstances(tmp_path, val=0.0).read(UNUSED).phrases
    }
    dog = np.zeros((480, 640), dtype=bool)
    dog[20:61, 10:40] = (
        True  # pixel centers at .5: the polygon covers columns 10 (on its edge) to 39
    )
    person = np.zeros((480, 640), dtype=bool)
    person[20:62, 10:40] = person[:, 0] = True
    np.testing.assert_array_equal(decode_mask(str(masks["dog"]), 640, 480), dog)
    np.testing.assert_array_equal(decode_mask(str(masks["person"]), 640, 480), person)


def test_coco_instances_without_segmentations_have_no_mask(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 2))
    path = tmp_path / "annotations" / "instances_train2017.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["segmentation"] = []  # of a person
    path.write_text(json.dumps(content))
    masks = {
        phrase.phrase: phrase.mask
        for phrase in COCOInstances(tmp_path, val=0.0).read(UNUSED).phrases
    }
    assert (masks["person"], masks["dog"] is None) == (None, False)


def test_coco_instances_names_the_invalid_segmentation(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 2))
    path = tmp_path / "annotations" / "instances_train2017.json"
    content = json.loads(path.read_text())
    content["annotations"][1]["segmentation"] = {"size": [640, 480], "counts": "0"}
    path.write_text(json.dumps(content))
    whole, corpus = len(content["annotations"]), COCOInstances(tmp_path, val=0.0).read(UNUSED)
    (problem,) = problems(corpus)
    assert problem.startswith("instances_train2017.json, ")
    assert "segmentation of size [640, 480], expected [height, width]" in problem
    assert sum(len(phrase.boxes) for phrase in corpus.phrases) + len(corpus.excluded) == whole - 1


def test_coco_instances_reads_one_subset_per_split(tmp_path):
    write_coco(tmp_path, "train2017", range(1, 4))
    write_coco(tmp_path, "val2017", range(4, 6))
    corpus = COCOInstances(tmp_path).read(UNUSED)
    assert splits(corpus) == {"1": "train", "2": "train", "3": "train", "4": "val", "5": "val"}
    assert corpus.images[3].path == "val2017/000000000004.jpg"
    assert len(texts(corpus)["5"]) == 5


def test_coco_instances_draws_fractions_with_the_seed(tmp_path):
    write_coco(tmp_path, "train2017", range(40))

    def drawn(seed: int) -> dict[str, str]:
        return splits(COCOInstances(tmp_path, val=0.25, test=0.1, seed=seed).read(UNUSED))

    first = drawn(1)
    counts = Counter(first.values())
    assert counts["val"] >= 10
    assert counts["test"] >= 4
    assert counts["train"] > 15
    assert drawn(1) == first
    assert drawn(2) != first
    write_coco(tmp_path, "train2017", range(39, -1, -1))
    assert drawn(1) == first  # for any order of the file


@pytest.mark.parametrize("fractions", [{"val": -0.1}, {"val": 0.5, "test": 0.5}])
def test_coco_instances_rejects_invalid_fractions(fractions):
    with pytest.raises(ValueError, match="must sum to less than 1"):
        COCOInstances(**fractions)


def test_coco_instances_names_the_invalid_file(tmp_path):
    write_coco(tmp_path, "train2017", range(2))
    with pytest.raises(ValueError, match=r"captions_val2017\.json: no such file"):
        COCOInstances(tmp_path).read(UNUSED)
    path = tmp_path / "annotations" / "instances_train2017.json"
    path.write_text(
        json.dumps(
            {"images": [], "annotations": [{"image_id": 1, "category_id": 7}], "categories": []}
        )
    )
    corpus = COCOInstances(tmp_path, val=0.0).read(UNUSED)
    assert problems(corpus) == [
        "instances_train2017.json, entry 1: no category has the category_id 7"
    ]
