"""Readers of phrases with boxes against small files in the published formats, and the papers' filtering."""

import json
from pathlib import Path

import pytest

from bifocal.datasets.corpora import Flickr30kEntities, ReferIt, VisualGenome

NOWHERE = Path("unused")
XML = """<annotation><filename>36979.jpg</filename><size><width>400</width><height>300</height><depth>3</depth></size>
<object><name>1</name><name>7</name><bndbox><xmin>1</xmin><ymin>11</ymin><xmax>100</xmax><ymax>210</ymax></bndbox></object>
<object><name>1</name><bndbox><xmin>201</xmin><ymin>1</ymin><xmax>300</xmax><ymax>200</ymax></bndbox></object>
<object><name>2</name><scene>1</scene><nobndbox>1</nobndbox></object></annotation>"""
SENTENCE = (
    "[/EN#1/people Two men] in [/EN#0/notvisual style] walk [/EN#2/scene outside] with [/EN#7/people/other one] ."
)


@pytest.fixture
def entities(tmp_path: Path) -> Path:
    for folder in ("Sentences", "Annotations"):
        (tmp_path / folder).mkdir()
    (tmp_path / "Sentences" / "36979.txt").write_text(f"{SENTENCE}\nNothing is marked here .\n")
    (tmp_path / "Annotations" / "36979.xml").write_text(XML)
    (tmp_path / "test.txt").write_text("36979\n")
    return tmp_path


def test_entities_gives_sentences_without_marks_and_phrases_with_all_their_boxes(entities):
    corpus = Flickr30kEntities(entities).read(NOWHERE)
    (image,) = corpus.images
    assert (image.image_id, image.split, image.size) == ("36979.jpg", "test", (400, 300))
    assert [caption.text for caption in corpus.captions] == [
        "Two men in style walk outside with one .", "Nothing is marked here .",
    ]  # fmt: skip
    # 1-based and inclusive: columns 1 to 100 are the edges 0 to 100.
    first, second = (0.0, 10.0, 100.0, 210.0), (200.0, 0.0, 300.0, 200.0)
    assert [(phrase.phrase, phrase.boxes) for phrase in corpus.phrases] == [
        ("Two men", (first, second)), ("one", (first,)),
    ]  # fmt: skip
    assert {phrase.caption_id for phrase in corpus.phrases} == {0}
    assert [phrase.category for phrase in corpus.phrases] == ["people", "people/other"]
    assert [(refusal.what, refusal.reason, refusal.by_design) for refusal in corpus.left_out] == [
        ("'style' of 36979.jpg", "it names nothing visible", True),
        ("'outside' of 36979.jpg", "it has no box", True),
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("Annotations/36979.xml", "<annotation>", "not in the format of Flickr30k Entities"),
        ("Annotations/36979.xml", "<annotation/>", "it has no size/width"),
        ("Annotations/36979.xml", XML.replace("<xmin>201</xmin>", ""), "it has no bndbox/xmin"),
        ("Sentences/36979.txt", None, "no such file"),
        ("test.txt", None, r"none of the lists train.txt"),
    ],
)
def test_entities_names_what_is_wrong(entities, name, content, expected):
    if content is None:
        (entities / name).unlink()
    else:
        (entities / name).write_text(content)
    with pytest.raises(ValueError, match=expected):
        Flickr30kEntities(entities).read(NOWHERE)


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    def image(number: int, coco: int | None) -> dict[str, object]:
        url = f"https://host/some/VG_100K{'_2' if number == 1 else ''}/{number}.jpg"
        return {"image_id": number, "url": url, "width": 80, "height": 60, "coco_id": coco}

    def region(number: int, phrase: str) -> dict[str, object]:
        return {"region_id": number, "x": 5, "y": 6, "width": 90, "height": 8, "phrase": phrase}

    (tmp_path / "image_data.json").write_text(json.dumps([image(1, 77), image(2, None), image(3, 78)]))
    regions = [
        {"id": 1, "regions": [region(10, "A man's café, red!"), region(11, "one two three four five six seven eight "
                                                                            "nine ten eleven"), region(12, " .")]},
        {"id": 2, "regions": [region(20, "the sky")]},
        {"id": 3, "regions": []},
    ]  # fmt: skip
    (tmp_path / "region_descriptions.json").write_text(json.dumps(regions))
    (tmp_path / "densecap_splits.json").write_text(json.dumps({"train": [2], "val": [], "test": [1]}))
    captions = {"images": [{"id": 77}], "annotations": [{"id": 900, "image_id": 77, "caption": "A man in a café."}]}
    (tmp_path / "captions_val2014.json").write_text(json.dumps(captions))
    return tmp_path


def test_genome_cleans_descriptions_and_leaves_out_the_long_and_the_empty(genome):
    corpus = VisualGenome(genome).read(NOWHERE)
    assert {image.image_id: (image.split, image.path, image.size) for image in corpus.images} == {
        "1": ("test", "VG_100K_2/1.jpg", (80, 60)),
        "2": ("train", "VG_100K/2.jpg", (80, 60)),
    }
    assert [(phrase.image_id, phrase.phrase, phrase.caption_id) for phrase in corpus.phrases] == [
        ("1", "a mans cafe red", 10), ("2", "the sky", 20),
    ]  # fmt: skip
    # Beyond the image's 80 x 60: the writer clips it.
    assert corpus.phrases[0].boxes == ((5.0, 6.0, 95.0, 14.0),)
    assert [caption.text for caption in corpus.captions] == ["a mans cafe red", "the sky"]
    reasons = {refusal.what: refusal.reason for refusal in corpus.left_out}
    assert reasons == {
        "3": "it is in no list of densecap_splits.json",
        "region 11 of 1": "it has 11 words, expected 1 to 10",
        "region 12 of 1": "it has 0 words, expected 1 to 10",
    }


def test_genome_with_coco_has_the_shared_images_with_cocos_captions(genome):
    corpus = VisualGenome(genome, coco="captions_val2014.json").read(NOWHERE)
    assert [(image.image_id, image.split) for image in corpus.images] == [("1", "test")]
    assert [(caption.caption_id, caption.image_id, caption.text) for caption in corpus.captions] == [
        (900, "1", "A man in a café.")
    ]
    assert [(phrase.phrase, phrase.caption_id) for phrase in corpus.phrases] == [("a mans cafe red", None)]


def test_genome_names_a_file_that_is_not_in_its_format(genome):
    (genome / "region_descriptions.json").write_text('{"regions": []}')
    with pytest.raises(ValueError, match="expected a list, got dict"):
        VisualGenome(genome).read(NOWHERE)
    (genome / "region_descriptions.json").write_text('[{"id": 1, "regions": [{"region_id": 1}]}]')
    with pytest.raises(ValueError, match="not in Visual Genome's format: KeyError 'phrase'"):
        VisualGenome(genome).read(NOWHERE)


@pytest.fixture
def referit(tmp_path: Path) -> Path:
    files = {
        "referit_bbox.json": {"8_1": [0, 10, 99, 59], "8_2": [1, 1, 2, 2], "9_1": [0, 0, 5, 5]},
        "referit_imsize.json": {"8": [480, 360]},
        "referit_query_test.json": {"8_1": ["sun", " sun ", "sun at top"]},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "referit_test_imlist.txt").write_text("8\n")
    return tmp_path


def test_referit_gives_unique_descriptions_of_described_regions(referit):
    corpus = ReferIt(referit).read(NOWHERE)
    assert [(image.image_id, image.path, image.split, image.size) for image in corpus.images] == [
        ("8", "8.jpg", "test", (480, 360))
    ]
    assert [(phrase.phrase, phrase.caption_id, phrase.boxes) for phrase in corpus.phrases] == [
        ("sun", 0, ((0.0, 10.0, 100.0, 60.0),)), ("sun at top", 1, ((0.0, 10.0, 100.0, 60.0),)),
    ]  # fmt: skip
    assert [caption.text for caption in corpus.captions] == ["sun", "sun at top"]
    assert [(refusal.what, refusal.reason) for refusal in corpus.left_out] == [("region 8_2", "nobody described it")]


def test_referit_names_what_is_wrong(referit):
    (referit / "referit_query_test.json").write_text('{"7_1": ["sun"]}')
    with pytest.raises(ValueError, match="not in ReferIt's format: KeyError '7_1'"):
        ReferIt(referit).read(NOWHERE)
    (referit / "referit_test_imlist.txt").unlink()
    with pytest.raises(ValueError, match="none of the lists"):
        ReferIt(referit).read(NOWHERE)
