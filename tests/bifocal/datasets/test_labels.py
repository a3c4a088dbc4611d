"""Labels: the readers of published files, the table, and those of the scenes."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.base import Corpus, ImageEntry, LabelEntry
from bifocal.datasets.corpora import VOC, LaMem, MediaEval, Scenes
from bifocal.datasets.scenes.layout import SHAPES

NOWHERE = Path("unused")
SETTINGS = {"copy_images": False, "max_pixels": 10_000, "max_rejected_fraction": 1.0}


def splits(corpus: Corpus) -> dict[str, str]:
    return {image.image_id: image.split for image in corpus.images}


def values(corpus: Corpus) -> dict[tuple[str, str], float | None]:
    return {(label.image_id, label.label): label.value for label in corpus.labels}


@pytest.fixture
def lamem(tmp_path: Path) -> Path:
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "train_2.txt").write_text("a.jpg 0.75\nb.jpg 1\n")
    (tmp_path / "splits" / "test_2.txt").write_text("c.jpg 0.5\n\n")
    return tmp_path


def test_lamem_reads_the_lists_of_a_fold(lamem):
    corpus = LaMem(lamem, fold=2).read(NOWHERE)
    assert splits(corpus) == {"a.jpg": "train", "b.jpg": "train", "c.jpg": "test"}
    assert [label.value for label in corpus.labels] == [0.75, 1, 0.5]
    assert corpus.image_root == lamem / "images"


@pytest.mark.parametrize("line", ["a.jpg", "a.jpg high", "a.jpg 0.5 0.6", "a.jpg 1.5", "a.jpg nan"])
def test_lamem_refuses_a_line_that_is_no_name_and_share(lamem, line):
    (lamem / "splits" / "train_2.txt").write_text(f"b.jpg 0.3\n{line}\n")
    with pytest.raises(ValueError, match=r"train_2\.txt, line 2.*expected"):
        LaMem(lamem, fold=2).read(NOWHERE)


def test_lamem_says_which_lists_it_looks_for(lamem):
    with pytest.raises(ValueError, match=r"none of the lists splits/train_1\.txt"):
        LaMem(lamem).read(NOWHERE)
    with pytest.raises(ValueError, match="fold is 6"):
        LaMem(fold=6)


HEADER = "video,short-term_memorability,nb_short-term_annotations,long-term_memorability,nb_long-term_annotations"


@pytest.fixture
def mediaeval(tmp_path: Path) -> Path:
    (tmp_path / "frames").mkdir()
    for name in ("video1-1.jpg", "video1-2.jpg", "video10-1.jpg", "video3-1.png", "video7-1.jpg", "readme.txt"):
        (tmp_path / "frames" / name).touch()
    rows = [f"video{number}.webm,0.{number},34,1.000,13" for number in (1, 2, 3)]
    (tmp_path / "ground-truth_dev-set.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    (tmp_path / "ground-truth_test-set.csv").write_text(f"{HEADER}\nvideo10.webm,0.9,30,0.5,9\n")
    return tmp_path


def test_mediaeval_gives_every_frame_the_scores_of_its_video(mediaeval):
    corpus = MediaEval(mediaeval, val=0).read(NOWHERE)
    train = {"video1-1.jpg": "train", "video1-2.jpg": "train", "video3-1.png": "train"}
    assert splits(corpus) == train | {"video10-1.jpg": "test"}
    short = {label.image_id: label for label in corpus.labels if label.task == "short_term_memorability"}
    assert {name: (label.group, label.value) for name, label in short.items()} == {
        "video1-1.jpg": ("video1", 0.1),
        "video1-2.jpg": ("video1", 0.1),
        "video3-1.png": ("video3", 0.3),
        "video10-1.jpg": ("video10", 0.9),
    }
    assert Counter(label.task for label in corpus.labels)["long_term_memorability"] == 4
    assert {refusal.what: refusal.by_design for refusal in corpus.left_out} == {"video2": True, "video7-1.jpg": True}


def test_lamem_completes_the_training_videos(mediaeval):
    (mediaeval / "lamem" / "splits").mkdir(parents=True)
    (mediaeval / "lamem" / "splits" / "test_1.txt").write_text("a.jpg 0.5\n")
    corpus = MediaEval(mediaeval, val=0, lamem="lamem").read(NOWHERE)
    places = {image.image_id: (image.path, image.split) for image in corpus.images}
    assert places["a.jpg"] == ("lamem/images/a.jpg", "train")
    assert places["video10-1.jpg"] == ("frames/video10-1.jpg", "test")
    assert corpus.image_root == mediaeval
    assert [(label.task, label.value) for label in corpus.labels if label.image_id == "a.jpg"] == [
        ("short_term_memorability", 0.5)
    ]


def test_mediaeval_draws_whole_videos(mediaeval):
    (mediaeval / "frames" / "video2-1.jpg").touch()
    corpora = [MediaEval(mediaeval, val=1 / 3, test=0, seed=seed).read(NOWHERE) for seed in range(8)]
    for corpus in corpora:
        assert Counter({name.partition("-")[0]: split for name, split in splits(corpus).items()}.values())["val"] == 1
    assert len({str(splits(corpus)) for corpus in corpora}) > 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("video,short-term_memorability\n", "has no column long-term_memorability"),
        (f"{HEADER}\nvideo1.webm,high,1,0.5,1\n", "line 2: .*has no number"),
        (f"{HEADER}\nvideo1.webm,0.5\n", "line 2: .*has no number"),
        (f"{HEADER}\nvideo1.webm,1.5,1,0.5,1\n", "line 2: scores .*expected shares"),
        (f"{HEADER}\nvideo1.webm,.5,1,0.5,1\nvideo1.webm,.5,1,0.5,1\n", "line 3: video1 is given twice"),
        (f"{HEADER}\nvideo10.webm,.5,1,0.5,1\n", "video10 is in the split train too"),
    ],
)
def test_mediaeval_says_what_is_wrong(mediaeval, text, message):
    (mediaeval / "ground-truth_dev-set.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        MediaEval(mediaeval).read(NOWHERE)


def annotation(*objects: tuple[str, int]) -> str:
    items = "".join(
        f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>1</xmin><ymin>3</ymin>"
        "<xmax>10</xmax><ymax>8</ymax></bndbox></object>"
        for name, difficult in objects
    )
    return f"<annotation><size><width>24</width><height>16</height><depth>3</depth></size>{items}</annotation>"


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    for name, split in (("000001", "train"), ("000002", "test")):
        (tmp_path / "ImageSets" / "Main" / f"{split}.txt").write_text(f"{name}\n")
    (tmp_path / "Annotations" / "000001.xml").write_text(annotation(("dog", 0), ("dog", 1), ("car", 1)))
    (tmp_path / "Annotations" / "000002.xml").write_text(annotation())
    return tmp_path


def test_voc_knows_what_is_there_what_is_not_and_what_is_difficult(voc):
    corpus = VOC(voc).read(NOWHERE)
    assert splits(corpus) == {"000001": "train", "000002": "test"}
    found = values(corpus)
    assert len(found) == 40
    assert (found["000001", "dog"], found["000001", "car"], found["000001", "cat"]) == (1, None, 0)
    assert not any(found["000002", label] for _, label in found)
    assert {phrase.phrase: phrase.boxes for phrase in corpus.phrases}["dog"] == ((0, 2, 10, 8),) * 2
    assert all(phrase.category == phrase.phrase for phrase in corpus.phrases)
    assert [image.size for image in corpus.images] == [(24, 16)] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>", "not an annotation of VOC"),
        ("<annotation/>", "it has no size/width"),
        (annotation(("unicorn", 0)), "an object is a 'unicorn'"),
        (annotation(("dog", 0)).replace("<xmax>10</xmax>", ""), "it has no bndbox/xmax"),
        (None, "no such file"),
    ],
)
def test_voc_says_what_is_wrong(voc, text, message):
    path = voc / "Annotations" / "000001.xml"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(ValueError, match=message):
        VOC(voc).read(NOWHERE)


def test_labels_go_through_the_table_and_their_split(tmp_path, photograph):
    for number, name in enumerate("abc"):
        photograph(tmp_path / "photos" / f"{name}.jpg", seed=number)
    images = [
        ImageEntry(name, f"{name}.jpg", split) for name, split in zip("abc", ("train", "train", "val"), strict=True)
    ]
    labels = [LabelEntry("a", "t", "x", 0.5, "film"), LabelEntry("b", "t", "x", None), LabelEntry("c", "t", "x", 1.0)]
    corpus = Corpus(tmp_path / "photos", images, (), labels=labels)
    broken = [LabelEntry("a", "t", "x", 2.0), LabelEntry("d", "t", "x", 2.0), LabelEntry("b", "u", "x", float("nan"))]
    counts = write_dataset(tmp_path, "Own", replace(corpus, labels=labels + broken), **SETTINGS)
    assert (counts["images"], counts["captions"], counts["labels"], counts["rejected_labels"]) == (3, 0, 3, 3)
    reasons = dict(pd.read_parquet(tmp_path / "rejected.parquet")[["what", "reason"]].to_numpy())
    assert reasons["t x of a"] == "it is given twice"
    assert reasons["u x of b"] == "its value is nan"
    train = read_dataset(tmp_path).split("train").labels
    assert list(zip(train["image_id"], train["group"], train["value"].isna(), strict=True)) == [
        ("a", "film", False),
        ("b", "b", True),
    ]


def test_a_dataset_without_labels_has_no_table_and_no_rows(tmp_path, photograph):
    scenes = Scenes(train=3, val=1, test=1, size=64).read(tmp_path / "images")
    write_dataset(tmp_path, "Scenes", replace(scenes, labels=()), **SETTINGS)
    assert not (tmp_path / "labels.parquet").exists()
    assert len(read_dataset(tmp_path).split("train").labels) == 0


def test_the_labels_of_a_scene_are_what_is_drawn_in_it(tmp_path):
    source = Scenes(train=20, val=1, test=1, size=64)
    found = values(source.read(tmp_path))
    for number in range(20):
        scene, _ = source.scene("train", number)
        shapes = [thing.kind.shape for group in scene.groups for thing in group]
        assert found[f"train-{number:05d}", "objects"] == len(shapes)
        assert [found[f"train-{number:05d}", shape] for shape in SHAPES] == [float(shape in shapes) for shape in SHAPES]
