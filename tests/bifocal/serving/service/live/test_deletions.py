"""The file of deleted items."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from bifocal.search.index.index import SearchIndex
from bifocal.serving.service.live.deletions import Deletions


def test_deletions_survive_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "deleted.jsonl"
    Deletions(file).add('a "quoted"\nid')
    with file.open("a") as opened:
        opened.write('"cut of')
    kept = Deletions(file)
    assert list(kept) == ['a "quoted"\nid']
    kept.add("second")
    assert set(Deletions(file)) == {'a "quoted"\nid', "second"}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Fail to write beyond ``size`` bytes of a file, as on a full disk."""
    former, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("free", [0, 1, 5, 8])
def test_a_failed_deletion_leaves_the_file_as_it_was(tmp_path: Path, free: int) -> None:
    file = tmp_path / "deleted.jsonl"
    deletions = Deletions(file)
    deletions.add("first")
    before = file.read_bytes()
    with largest_file(len(before) + free), pytest.raises(OSError, match=r"space|large"):
        deletions.add("second")
    assert file.read_bytes() == before
    assert "second" not in deletions
    deletions.add("third")
    assert set(Deletions(file)) == set(deletions) == {"first", "third"}


def test_a_deletion_is_looked_up_once_in_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The review of commit 097c66e: each search looked up all deletions, 69 ms at 100,000."""
    index, other = (SearchIndex.of([f"{start + row}" for row in range(4)], np.eye(4)) for start in (0, 2))
    looked_up, contains = list[object](), SearchIndex.__contains__

    def count(searched: SearchIndex, item_id: object) -> bool:
        looked_up.append(item_id)
        return contains(searched, item_id)

    monkeypatch.setattr(SearchIndex, "__contains__", count)
    deletions = Deletions()
    deletions.include(["1", "3", "9"])
    for _ in range(3):
        found = deletions.rows(index)
        assert (found.mask.tolist(), found.count) == ([False, True, False, True], 2)
    deletions.add("0")
    assert deletions.rows(index).mask.tolist() == [True, True, False, True]
    assert looked_up == ["1", "3", "9", "0"]
    assert deletions.rows(other).mask.tolist() == [False, True, False, False]
    assert not np.any(index.allowed(None, ["2"], deletions.rows(index).mask))


def test_two_services_with_one_file_see_the_deletions_of_each_other(tmp_path: Path) -> None:
    file = tmp_path / "deleted.jsonl"
    first, second = Deletions(file), Deletions(file)
    for number in range(3):
        first.add(f"first {number}")
        second.add(f"second {number}")
    with file.open("a") as opened:
        opened.write('"cut of')
    for deletions in (first, second):
        deletions.read_file()
        deletions.read_file()
        assert sorted(deletions) == [f"{name} {number}" for name in ("first", "second") for number in range(3)]
