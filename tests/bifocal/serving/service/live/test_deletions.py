"""The file of deleted items."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
