"""MediaEval on small files in the published format."""

import re
from collections import Counter
from pathlib import Path

import pytest

from bifocal.datasets.corpora import MediaEval
from tests.bifocal.datasets.corpora.entries import UNUSED, problems, splits

HEADER = "video,short-term_memorability,nb_short-term_annotations,long-term_memorability,nb_long-term_annotations"


@pytest.fixture
def mediaeval(tmp_path: Path) -> Path:
    (tmp_path / "frames").mkdir()
    for name in (
        "video1-1.jpg",
        "video1-2.jpg",
        "video10-1.jpg",
        "video3-1.png",
        "video7-1.jpg",
        "readme.txt",
    ):
        (tmp_path / "frames" / name).touch()
    rows = [f"video{number}.webm,0.{number},34,1.000,13" for number in (1, 2, 3)]
    (tmp_path / "ground-truth_dev-set.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    (tmp_path / "ground-truth_test-set.csv").write_text(f"{HEADER}\nvideo10.webm,0.9,30,0.5,9\n")
    return tmp_path


def test_mediaeval_labels_every_frame_with_the_scores_of_its_video(mediaeval):
    corpus = MediaEval(mediaeval, val=0).read(UNUSED)
    train = {"video1-1.jpg": "train", "video1-2.jpg": "train", "video3-1.png": "train"}
    assert splits(corpus) == train | {"video10-1.jpg": "test"}
    short = {
        label.image_id: label for label in corpus.labels if label.task == "short_term_memorability"
    }
    assert {name: (label.group, label.value) for name, label in short.items()} == {
        "video1-1.jpg": ("video1", 0.1),
        "video1-2.jpg": ("video1", 0.1),
        "video3-1.png": ("video3", 0.3),
        "video10-1.jpg": ("video10", 0.9),
    }
    assert Counter(label.task for label in corpus.labels)["long_term_memorability"] == 4
    assert {entry.entry: entry.intentional for entry in corpus.excluded} == {
        "video2": True,
        "video7-1.jpg": True,
    }


def test_mediaeval_adds_lamem_to_train(mediaeval):
    (mediaeval / "lamem" / "splits").mkdir(parents=True)
    (mediaeval / "lamem" / "splits" / "test_1.txt").write_text("a.jpg 0.5\n")
    corpus = MediaEval(mediaeval, val=0, lamem="lamem").read(UNUSED)
    files = {image.image_id: (image.path, image.split) for image in corpus.images}
    assert files["a.jpg"] == ("lamem/images/a.jpg", "train")
    assert files["video10-1.jpg"] == ("frames/video10-1.jpg", "test")
    assert corpus.image_root == mediaeval
    assert [(label.task, label.value) for label in corpus.labels if label.image_id == "a.jpg"] == [
        ("short_term_memorability", 0.5)
    ]


def test_mediaeval_draws_whole_videos(mediaeval):
    (mediaeval / "frames" / "video2-1.jpg").touch()
    corpora = [MediaEval(mediaeval, val=1 / 3, test=0, seed=seed).read(UNUSED) for seed in range(8)]
    for corpus in corpora:
        of_video: dict[str, set[str]] = {}
        for name, split in splits(corpus).items():
            of_video.setdefault(name.partition("-")[0], set()).add(split)
        assert all(len(found) == 1 for found in of_video.values())
        assert {"train"} in of_video.values()
        assert {"val"} in of_video.values()
    assert len({str(splits(corpus)) for corpus in corpora}) > 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("video,short-term_memorability\n", "has no column long-term_memorability"),
        (f"{HEADER}\nvideo1.webm,high,1,0.5,1\n", "line 2: .*has no number"),
        (f"{HEADER}\nvideo1.webm,0.5\n", "line 2: .*has no number"),
        (f"{HEADER}\nvideo1.webm,1.5,1,0.5,1\n", "line 2: scores .*expected fractions"),
        (
            f"{HEADER}\nvideo1.webm,.5,1,0.5,1\nvideo1.webm,.5,1,0.5,1\n",
            "line 3: duplicate video video1",
        ),
        (f"{HEADER}\nvideo10.webm,.5,1,0.5,1\n", "video10 is also in the split train"),
    ],
)
def test_mediaeval_names_the_invalid_line(mediaeval, text, message):
    (mediaeval / "ground-truth_dev-set.csv").write_text(text)
    if not message.startswith("line"):
        with pytest.raises(ValueError, match=message):
            MediaEval(mediaeval).read(UNUSED)
        return
    (problem,) = problems(MediaEval(mediaeval).read(UNUSED))
    assert re.search(message, problem)
