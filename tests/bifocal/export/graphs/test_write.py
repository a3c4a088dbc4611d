"""Fresh processes of exports."""

import gc
from pathlib import Path

from bifocal.export.graphs.write import run_in_fresh_process


def write_counts(file: Path) -> None:
    file.write_text(f"{gc.get_freeze_count()} {len(gc.get_objects())}")


def test_objects_of_packages_are_frozen(tmp_path: Path) -> None:
    run_in_fresh_process(write_counts, tmp_path / "counts")
    frozen, others = map(int, (tmp_path / "counts").read_text().split())
    assert frozen > 100_000
    assert others < frozen / 10
