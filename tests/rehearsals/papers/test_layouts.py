"""Miniature corpora in their published layouts: readers find the pictures, sentences and boxes that
were written."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from bifocal.datasets.base import Corpus
from bifocal.datasets.corpora import (
    COCO,
    VOC,
    COCOInstances,
    Flickr30k,
    Flickr30kEntities,
    LaMem,
    ReferIt,
    VisualGenome,
)
from bifocal.onnx.text.pretrained_word_vectors import read_word_vectors
from bifocal.onnx.text.tfidf import WordNet
from bifocal.text.elmo import Elmo
from tests.rehearsals.papers.layouts.coco import write_annotations
from tests.rehearsals.papers.layouts.entities import write_flickr30k_entities
from tests.rehearsals.papers.layouts.karpathy import (
    coco_id,
    flickr_number,
    write_coco,
    write_flickr30k,
)
from tests.rehearsals.papers.layouts.labels import memorability, write_lamem, write_voc
from tests.rehearsals.papers.layouts.referit import write_referit
from tests.rehearsals.papers.layouts.texts import write_elmo, write_word2vec, write_wordnet
from tests.rehearsals.papers.layouts.visual_genome import genome_id, write_visual_genome
from tests.rehearsals.papers.pictures import Picture, draw

UNUSED = Path("unused")
PICTURES = draw(seed=3, train=4, val=1, test=2)


def check_images(corpus: Corpus, ids: Iterable[object]) -> None:
    assert [image.image_id for image in corpus.images] == [str(number) for number in ids]
    assert [image.split for image in corpus.images] == [picture.split for picture in PICTURES]
    assert all((corpus.image_root / str(image.path)).is_file() for image in corpus.images)


def captions_of(corpus: Corpus) -> list[str]:
    return [caption.text for caption in corpus.captions]


def sentences() -> list[str]:
    return [sentence.text for picture in PICTURES for sentence in picture.sentences]


def boxes_of(pictures: Iterable[Picture]) -> set[tuple[float, ...]]:
    return {picture.box(item) for picture in pictures for item in picture.objects()}


def test_karpathy(tmp_path: Path) -> None:
    write_coco(PICTURES, tmp_path / "coco")
    write_flickr30k(PICTURES, tmp_path / "flickr30k")
    coco = COCO(tmp_path / "coco").read(UNUSED)
    flickr = Flickr30k(tmp_path / "flickr30k", images="flickr30k-images").read(UNUSED)
    check_images(coco, map(coco_id, PICTURES))
    check_images(flickr, (f"{flickr_number(picture)}.jpg" for picture in PICTURES))
    assert captions_of(coco) == captions_of(flickr) == sentences()


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


def test_flickr30k_entities(tmp_path: Path) -> None:
    write_flickr30k_entities(PICTURES, tmp_path)
    corpus = Flickr30kEntities(tmp_path).read(UNUSED)
    check_images(corpus, (f"{flickr_number(picture)}.jpg" for picture in PICTURES))
    assert [text.replace(" ", "") for text in captions_of(corpus)] == [
        text.replace(" ", "") for text in sentences()
    ]
    expected = [
        (phrase, tuple(picture.box(item) for item in group))
        for picture in PICTURES
        for sentence in picture.sentences
        for phrase, group in sentence.phrases
    ]
    assert sorted((phrase.phrase, phrase.boxes) for phrase in corpus.phrases) == sorted(expected)


def test_visual_genome(tmp_path: Path) -> None:
    write_visual_genome(PICTURES, tmp_path)
    corpus = VisualGenome(tmp_path).read(UNUSED)
    check_images(corpus, map(genome_id, PICTURES))
    first = {phrase.boxes[0] for phrase in corpus.phrases} & boxes_of(PICTURES)
    assert len(first) >= sum(len(picture.scene.groups) for picture in PICTURES)
    shared = VisualGenome(tmp_path, coco="captions_val2014.json").read(UNUSED)
    assert {image.image_id for image in shared.images} == {
        str(coco_id(p)) for p in PICTURES if p.split != "train"
    }
    assert {caption.text for caption in shared.captions} <= set(sentences())


def test_referit(tmp_path: Path) -> None:
    write_referit(PICTURES, tmp_path)
    corpus = ReferIt(tmp_path).read(UNUSED)
    described = [
        p for p in PICTURES if any(len(group) == 1 for s in p.sentences for _, group in s.phrases)
    ]
    assert 1 < len(described) < len(PICTURES)
    assert [(image.image_id, image.split) for image in corpus.images] == [
        (str(p.number), p.split) for p in described
    ]
    assert all((corpus.image_root / str(image.path)).is_file() for image in corpus.images)
    assert {phrase.boxes[0] for phrase in corpus.phrases} <= boxes_of(PICTURES)
    assert len(corpus.phrases) > len(PICTURES)


def test_ranking_tasks(tmp_path: Path) -> None:
    write_lamem(PICTURES, tmp_path / "lamem")
    write_voc(PICTURES, tmp_path / "voc")
    lamem, voc = LaMem(tmp_path / "lamem").read(UNUSED), VOC(tmp_path / "voc").read(UNUSED)
    check_images(lamem, (f"{picture.number:08d}.jpg" for picture in PICTURES))
    check_images(voc, (f"{picture.number:06d}" for picture in PICTURES))
    assert [label.value for label in lamem.labels] == pytest.approx(
        list(map(memorability, PICTURES)), abs=1e-6
    )
    assert {box for phrase in voc.phrases for box in phrase.boxes} == boxes_of(PICTURES)


def test_words(tmp_path: Path) -> None:
    write_word2vec(sentences(), tmp_path / "vectors.bin")
    write_wordnet(sentences(), tmp_path)
    write_elmo(sentences(), tmp_path / "elmo")
    vectors = read_word_vectors(tmp_path / "vectors.bin", ["a", "New_York", "absent"])
    assert set(vectors.vectors) == {"a", "New_York"}
    assert vectors.dim == 300
    wordnet = WordNet.read(tmp_path)
    assert "a" in wordnet.nouns
    elmo = Elmo.load(tmp_path / "elmo" / "options.json", *(tmp_path / "elmo").glob("*.hdf5"))
    layers = elmo.layers([["A", "red", "star"], ["A", "star"]], 2)
    assert [layer.shape for layer in layers] == [(3, 3, 64), (3, 2, 64)]
    assert np.isfinite(layers[0]).all()
    assert layers[0].std() > 0.01
