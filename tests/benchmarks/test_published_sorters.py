"""Trainings of sorters that stop at a CPU time and go on."""

from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.quality import published_sorters as benchmark
from benchmarks.quality.sorters import public_scores
from bifocal.sorters import PairwiseSorter
from bifocal.training.pretraining.sorter import rank_l1


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


def test_public_scores_reproduce_the_published_error_of_the_handcrafted_sorter() -> None:
    scores = public_scores(2000, 100, torch.Generator().manual_seed(0))
    assert rank_l1(PairwiseSorter(), scores) == pytest.approx(0.0350, abs=0.001)  # thesis table 5.1
    in_range = scores.abs().amax(dim=1) <= 1
    ascending = (scores.diff(dim=1) > 0).all(dim=1)
    assert in_range.float().mean().item() == pytest.approx(
        0.7, abs=0.05
    )  # all kinds but the normal and the mixed
    assert ascending.float().mean().item() == pytest.approx(
        0.15, abs=0.03
    )  # the last kind, and half of those in order
    assert torch.equal(scores, public_scores(2000, 100, torch.Generator().manual_seed(0)))


def test_sorters_train_on_the_vectors_of_the_authors_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, int]] = []

    def draw(count: int, length: int, generator: Generator) -> Tensor:
        drawn.append((count, length))
        return public_scores(count, length, generator)

    monkeypatch.setattr(benchmark, "LENGTH", 37)
    monkeypatch.setattr(benchmark, "VECTORS", benchmark.BATCH)
    monkeypatch.setattr("bifocal.training.pretraining.sorter.HELD_OUT_VECTORS", 100)
    benchmark.train("PublishedCNNSorter", 1e9, tmp_path, 1, draw)
    assert drawn == [(100, 37), (benchmark.BATCH, 37)]
