"""RefCOCO on small files in the published format."""

import json
import re
from pathlib import Path

import pytest

from bifocal.datasets.corpora import RefCOCO
from tests.bifocal.datasets.corpora.entries import UNUSED, problems


def write_part(root: Path, part: str, expressions: list[tuple[int, str, list[float], int]]) -> None:
    """Write expressions (image, text, x y width height, category) as MDETR's authors do."""
    images, annotations = [], []
    for number, (image, text, box, category) in enumerate(expressions, 1000):
        images.append(
            {
                "file_name": f"COCO_train2014_{image:012d}.jpg",
                "height": 60,
                "width": 80,
                "id": number,
                "original_id": image,
                "caption": text,
                "dataset_name": "refcoco",
                "tokens_negative": [[0, 3]],
            }
        )
        annotations.append(
            {
                "area": 1.0,
                "iscrowd": 0,
                "image_id": number,
                "category_id": category,
                "id": number,
                "bbox": box,
                "original_id": 7,
                "tokens_positive": [[0, 3]],
            }
        )
    categories = [{"supercategory": "person", "id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    content = {
        "info": {},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": categories,
    }
    (root / f"finetune_refcoco_{part}.json").write_text(json.dumps(content))


@pytest.fixture
def refcoco(tmp_path: Path) -> Path:
    write_part(
        tmp_path,
        "val",
        [(9, "left dog", [1, 2, 10, 20], 18), (9, "the man", [30.5, 0, 9.5, 60], 1)],
    )
    write_part(tmp_path, "testA", [(12, "man in red", [0, 0, 40, 30], 1)])
    write_part(tmp_path, "testB", [(13, "dog", [0, 0, 40, 30], 18)])
    return tmp_path


def test_expressions_are_captions_and_phrases_with_a_box(refcoco: Path) -> None:
    corpus = RefCOCO(refcoco).read(UNUSED)
    assert [(image.image_id, image.path, image.split, image.size) for image in corpus.images] == [
        ("9", "COCO_train2014_000000000009.jpg", "val", (80, 60)),
        ("12", "COCO_train2014_000000000012.jpg", "test", (80, 60)),
    ]
    assert [(caption.image_id, caption.text) for caption in corpus.captions] == [
        ("9", "left dog"),
        ("9", "the man"),
        ("12", "man in red"),
    ]
    assert [
        (phrase.caption_id, phrase.phrase, phrase.boxes, phrase.category)
        for phrase in corpus.phrases
    ] == [
        (0, "left dog", ((1.0, 2.0, 11.0, 22.0),), "dog"),
        (1, "the man", ((30.5, 0.0, 40.0, 60.0),), "person"),
        (2, "man in red", ((0.0, 0.0, 40.0, 30.0),), "person"),
    ]
    assert corpus.image_root == refcoco / "train2014"
    assert [image.image_id for image in RefCOCO(refcoco, test="testB").read(UNUSED).images] == [
        "9",
        "13",
    ]


def test_errors_name_the_part_and_the_file(refcoco: Path) -> None:
    with pytest.raises(ValueError, match="refcocog has no part 'testA'"):
        RefCOCO(refcoco, "refcocog")
    write_part(refcoco, "testA", [(9, "man", [0, 0, 4, 3], 1)])
    (problem,) = problems(RefCOCO(refcoco).read(UNUSED))
    assert "image 9 is also in the part val" in problem
    write_part(refcoco, "testA", [(12, "man", [0, 0, 4, 3], 2)])
    (problem,) = problems(RefCOCO(refcoco).read(UNUSED))
    assert re.match(r"finetune_refcoco_testA\.json, .*: no '2'", problem)
