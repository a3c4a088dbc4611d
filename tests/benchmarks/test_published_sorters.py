"""Trainings of sorters that stop at a CPU time and go on."""

from pathlib import Path

import pytest

from benchmarks.quality import published_sorters as benchmark


def test_a_stopped_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "LENGTH", 37)
    monkeypatch.setattr(benchmark, "BATCH", 8)
    monkeypatch.setattr(benchmark, "VECTORS", 16)
    monkeypatch.setattr("bifocal.training.pretraining.sorter.HELD_OUT_VECTORS", 100)
    name = "PublishedCNNSorter"
    whole = benchmark.train(name, 1e9, tmp_path / "whole", epochs=2)
    for epochs in (1, 2):
        error, found, spent = benchmark.train(name, 0.0, tmp_path / "parts", epochs=2)
        assert found == epochs
        assert spent > 0
    assert (error, found) == whole[:2]
