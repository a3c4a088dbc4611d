"""LaMem on small files in the published format."""

import re
from pathlib import Path

import pytest

from bifocal.datasets.corpora import LaMem
from tests.bifocal.datasets.corpora.entries import UNUSED, problems, splits


@pytest.fixture
def lamem(tmp_path: Path) -> Path:
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "train_2.txt").write_text("a.jpg 0.75\nb.jpg 1\n")
    (tmp_path / "splits" / "test_2.txt").write_text("c.jpg 0.5\n\n")
    return tmp_path


def test_lamem_reads_the_lists_of_a_fold(lamem):
    corpus = LaMem(lamem, fold=2).read(UNUSED)
    assert splits(corpus) == {"a.jpg": "train", "b.jpg": "train", "c.jpg": "test"}
    assert [label.value for label in corpus.labels] == [0.75, 1, 0.5]
    assert corpus.image_root == lamem / "images"


@pytest.mark.parametrize("line", ["a.jpg", "a.jpg high", "a.jpg 0.5 0.6", "a.jpg 1.5", "a.jpg nan"])
def test_lamem_rejects_a_line_that_is_not_name_and_score(lamem, line):
    (lamem / "splits" / "train_2.txt").write_text(f"b.jpg 0.3\n{line}\n")
    corpus = LaMem(lamem, fold=2).read(UNUSED)
    (problem,) = problems(corpus)
    assert re.match(r"train_2\.txt, line 2.*expected", problem)
    assert "b.jpg" in splits(corpus)


def test_lamem_names_missing_lists_and_an_unknown_fold(lamem):
    with pytest.raises(ValueError, match=r"none of the lists splits/train_1\.txt"):
        LaMem(lamem).read(UNUSED)
    with pytest.raises(ValueError, match="fold is 6"):
        LaMem(fold=6)
