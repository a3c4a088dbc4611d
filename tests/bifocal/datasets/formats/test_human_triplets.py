"""Triplets of images with the votes of people."""

from pathlib import Path

import pytest
import torch

from bifocal.datasets.formats.human_triplets import read_decisions, read_triplets
from bifocal.metrics import triplet_agreement

HEAD = "query,first,second,o1,o2,o3\n"
USERS = "query,first,second,user,choice\n"


def test_triplets_are_read_and_give_agreement(tmp_path: Path) -> None:
    path = tmp_path / "triplets.csv"
    path.write_text(HEAD + "007,a,b,4,1,0\n007,NA,c,0,2,2\n")
    table = read_triplets(path)
    # Ids stay strings, even if they look like numbers or NA.
    assert table[["query", "first", "second"]].to_numpy().tolist() == [["007", "a", "b"], ["007", "NA", "c"]]
    votes = torch.from_numpy(table[["o1", "o2", "o3"]].to_numpy())
    # 4 of 5 chose a; 2 of 4 chose c, and 2 chose neither.
    assert triplet_agreement(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), votes) == pytest.approx(65.0)


def test_single_decisions_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(USERS + "q,a,b,u,first\nr,a,b,u,neither\nq,a,b,v,second\nq,a,b,w,first\n")
    decisions = read_decisions(path)
    assert decisions is not None
    assert decisions["choice"].tolist() == ["first", "neither", "second", "first"]
    assert read_triplets(path).to_numpy().tolist() == [["q", "a", "b", 2, 1, 0], ["r", "a", "b", 0, 0, 1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("query,first,second,o1,o2\n", "has no column o3; it has query"),
        (HEAD + "q,a,b,1,2,3\nq,a,b,-1,2,3\n", "line 3, column o1: '-1', expected an integer of at least 0"),
        (HEAD + "q,a,b,1,2,\n", "line 2, column o3: ''"),
        (None, "no such file"),
        ("query,first,second,user\nq,a,b,u\n", "has no column choice"),
        (USERS + "q,a,b,u,first\nq,a,b,v,both\n", "line 3, column choice: 'both', expected one of first, second"),
        (USERS + "q,a,b,u,first\nq,a,b,u,second\n", "line 3, column user: 'u', expected one decision of a user"),
    ],
)
def test_invalid_triplets_are_rejected(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "triplets.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=expected):
        read_triplets(path)
