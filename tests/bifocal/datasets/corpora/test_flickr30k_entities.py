"""Flickr30kEntities on small files in the published format."""

import re
from pathlib import Path

import pytest

from bifocal.datasets.corpora import Flickr30kEntities
from tests.bifocal.datasets.corpora.entries import UNUSED, problems

XML = """<annotation><filename>36979.jpg</filename><size><width>400</width><height>300</height><depth>3</depth></size>
<object><name>1</name><name>7</name><bndbox><xmin>1</xmin><ymin>11</ymin><xmax>100</xmax><ymax>210</ymax></bndbox></object>
<object><name>1</name><bndbox><xmin>201</xmin><ymin>1</ymin><xmax>300</xmax><ymax>200</ymax></bndbox></object>
<object><name>2</name><scene>1</scene><nobndbox>1</nobndbox></object></annotation>"""
SENTENCE = (
    "[/EN#1/people Two men] in [/EN#0/notvisual style] walk [/EN#2/scene outside] with "
    "[/EN#7/people/other one] ."
)


@pytest.fixture
def entities(tmp_path: Path) -> Path:
    for folder in ("Sentences", "Annotations"):
        (tmp_path / folder).mkdir()
    (tmp_path / "Sentences" / "36979.txt").write_text(f"{SENTENCE}\nNothing is marked here .\n")
    (tmp_path / "Annotations" / "36979.xml").write_text(XML)
    (tmp_path / "test.txt").write_text("36979\n")
    return tmp_path


def test_entities_reads_plain_sentences_and_phrases_with_all_boxes(entities):
    corpus = Flickr30kEntities(entities).read(UNUSED)
    (image,) = corpus.images
    assert (image.image_id, image.split, image.size) == ("36979.jpg", "test", (400, 300))
    assert [caption.text for caption in corpus.captions] == [
        "Two men in style walk outside with one .",
        "Nothing is marked here .",
    ]
    # 1-based and inclusive: columns 1 to 100 are the edges 0 to 100.
    first, second = (0.0, 10.0, 100.0, 210.0), (200.0, 0.0, 300.0, 200.0)
    assert [(phrase.phrase, phrase.boxes) for phrase in corpus.phrases] == [
        ("Two men", (first, second)),
        ("one", (first,)),
    ]
    assert {phrase.caption_id for phrase in corpus.phrases} == {0}
    assert [phrase.category for phrase in corpus.phrases] == ["people", "people/other"]
    assert [(entry.entry, entry.reason, entry.intentional) for entry in corpus.excluded] == [
        ("'style' of 36979.jpg", "names nothing visible", True),
        ("'outside' of 36979.jpg", "no box", True),
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("Annotations/36979.xml", "<annotation>", "36979.jpg: .*36979.xml is not XML"),
        ("Annotations/36979.xml", "<annotation/>", "no size/width"),
        ("Annotations/36979.xml", XML.replace("<xmin>201</xmin>", ""), "no bndbox/xmin"),
        ("Sentences/36979.txt", None, "no such file"),
        ("test.txt", None, r"none of the lists train.txt"),
    ],
)
def test_entities_names_the_invalid_file(entities, name, content, expected):
    if content is None:
        (entities / name).unlink()
    else:
        (entities / name).write_text(content)
    if name == "test.txt":
        with pytest.raises(ValueError, match=expected):
            Flickr30kEntities(entities).read(UNUSED)
        return
    (problem,) = problems(Flickr30kEntities(entities).read(UNUSED))
    assert re.search(expected, problem)
