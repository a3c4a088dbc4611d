"""The file of deleted items."""

from pathlib import Path

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
