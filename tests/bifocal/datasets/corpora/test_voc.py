"""VOC on small files in the published format."""

from pathlib import Path

import pytest

from bifocal.datasets.corpora import VOC
from tests.bifocal.datasets.corpora.entries import UNUSED, label_values, problems, splits


def annotation(*objects: tuple[str, int]) -> str:
    items = "".join(
        f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>1</xmin><ymin>3</ymin><xmax>10</xmax><ymax>8</ymax></bndbox></object>"
        for name, difficult in objects
    )
    return f"<annotation><size><width>24</width><height>16</height><depth>3</depth></size>{items}</annotation>"


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    for name, split in (("000001", "train"), ("000002", "test")):
        (tmp_path / "ImageSets" / "Main" / f"{split}.txt").write_text(f"{name}\n")
    (tmp_path / "Annotations" / "000001.xml").write_text(
        annotation(("dog", 0), ("dog", 1), ("car", 1))
    )
    (tmp_path / "Annotations" / "000002.xml").write_text(annotation())
    return tmp_path


def test_voc_labels_are_present_absent_or_difficult(voc):
    corpus = VOC(voc).read(UNUSED)
    assert splits(corpus) == {"000001": "train", "000002": "test"}
    labels = label_values(corpus)
    assert len(labels) == 40
    assert (labels["000001", "dog"], labels["000001", "car"], labels["000001", "cat"]) == (
        1,
        None,
        0,
    )
    assert not any(labels["000002", label] for _, label in labels)
    assert {phrase.phrase: phrase.boxes for phrase in corpus.phrases}["dog"] == ((0, 2, 10, 8),) * 2
    assert all(phrase.category == phrase.phrase for phrase in corpus.phrases)
    assert [image.size for image in corpus.images] == [(24, 16)] * 2


def test_voc_draws_a_fraction_of_the_training_images_for_validation(voc):
    names = [f"{number:06d}" for number in range(10, 20)]
    (voc / "ImageSets" / "Main" / "trainval.txt").write_text("\n".join(names))
    for name in names:
        (voc / "Annotations" / f"{name}.xml").write_text(annotation(("dog", 0)))
    drawn = splits(VOC(voc, train="trainval", val=0.3).read(UNUSED))
    assert sorted(drawn) == ["000002", *names]
    assert sorted(drawn.values()) == ["test"] + 7 * ["train"] + 3 * ["val"]
    assert drawn == splits(VOC(voc, train="trainval", val=0.3).read(UNUSED))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>", "000001.xml is not XML"),
        ("<annotation/>", "no size/width"),
        (annotation(("unicorn", 0)), "unknown class 'unicorn'"),
        (annotation(("dog", 0)).replace("<xmax>10</xmax>", ""), "no bndbox/xmax"),
        (None, "no such file"),
    ],
)
def test_voc_names_the_invalid_annotation(voc, text, message):
    path = voc / "Annotations" / "000001.xml"
    path.unlink() if text is None else path.write_text(text)
    corpus = VOC(voc).read(UNUSED)
    (problem,) = problems(corpus)
    assert problem.startswith("000001")
    assert message in problem
    assert len(corpus.images) >= 1
