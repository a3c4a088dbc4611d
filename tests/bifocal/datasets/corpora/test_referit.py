"""ReferIt on small files in the published format."""

import json
from pathlib import Path

import pytest

from bifocal.datasets.corpora import ReferIt
from tests.bifocal.datasets.corpora.entries import UNUSED, problems


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


def test_referit_reads_unique_descriptions_and_excludes_regions_without(referit):
    corpus = ReferIt(referit).read(UNUSED)
    assert [(image.image_id, image.path, image.split, image.size) for image in corpus.images] == [
        ("8", "8.jpg", "test", (480, 360))
    ]
    assert [(phrase.phrase, phrase.caption_id, phrase.boxes) for phrase in corpus.phrases] == [
        ("sun", 0, ((0.0, 10.0, 100.0, 60.0),)),
        ("sun at top", 1, ((0.0, 10.0, 100.0, 60.0),)),
    ]
    assert [caption.text for caption in corpus.captions] == ["sun", "sun at top"]
    assert [(entry.entry, entry.reason) for entry in corpus.excluded] == [
        ("region 8_2", "no description")
    ]


def test_referit_names_the_invalid_file(referit):
    (referit / "referit_query_test.json").write_text('{"7_1": ["sun"]}')
    assert problems(ReferIt(referit).read(UNUSED)) == ["region 7_1: no '7_1'"]
    (referit / "referit_test_imlist.txt").unlink()
    with pytest.raises(ValueError, match="none of the lists"):
        ReferIt(referit).read(UNUSED)
