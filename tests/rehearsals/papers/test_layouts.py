"""Phrases of objects beside the captions of a miniature COCO."""

from collections.abc import Iterable
from pathlib import Path

from bifocal.datasets.corpora import COCO, COCOInstances
from tests.rehearsals.papers.layouts.coco import write_annotations
from tests.rehearsals.papers.layouts.karpathy import coco_id, write_coco
from tests.rehearsals.papers.pictures import Picture, draw

UNUSED = Path("unused")
PICTURES = draw(seed=3, train=4, val=1, test=2)


def boxes_of(pictures: Iterable[Picture]) -> set[tuple[float, ...]]:
    return {picture.box(item) for picture in pictures for item in picture.objects()}


def test_coco_instances(tmp_path: Path) -> None:
    write_coco(PICTURES, tmp_path)
    write_annotations(PICTURES, tmp_path)
    corpus = COCOInstances(tmp_path, train="train2014", val="val2014").read(UNUSED)
    assert {image.image_id for image in corpus.images} == {
        str(coco_id(picture)) for picture in PICTURES
    }
    assert {box for phrase in corpus.phrases for box in phrase.boxes} == boxes_of(PICTURES)
    split = COCO(tmp_path, instances=True, restval=False).read(UNUSED)
    listed = {image.image_id for image in split.images}
    assert {phrase.image_id for phrase in split.phrases} == listed
    assert [
        image
        for image in split.images
        if image not in COCO(tmp_path, restval=False).read(UNUSED).images
    ] == []
    assert [phrase for phrase in corpus.phrases if phrase.image_id in listed] == list(split.phrases)
