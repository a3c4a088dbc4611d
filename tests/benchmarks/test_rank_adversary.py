"""Adversary of thesis section 5.6 against each sorter."""

import pytest
import torch

from benchmarks.rank_adversary import run_adversary
from bifocal.sorters import (
    CNNSorter,
    ExactRankSorter,
    PairwiseSorter,
    PositionwiseLSTMSorter,
)
from bifocal.training.pretraining.sorter import train_sorter
from bifocal.training.schedules import Step

SETTINGS = {"length": 16, "rows": 64, "steps": 300, "learning_rate": 0.02, "seed": 0}


@pytest.mark.parametrize("learning_rate", [0.002, 0.02, 2.0])
def test_exact_rank_sorter_predicts_actual_ranks_against_the_adversary(learning_rate):
    for seed in range(3):
        before, after = run_adversary(
            ExactRankSorter(), **SETTINGS | {"learning_rate": learning_rate, "seed": seed}
        )
        assert (before.predicted, after.predicted) == (before.actual, after.actual)
        assert after.actual < before.actual / 2


@pytest.mark.parametrize(
    "sorter",
    [
        ExactRankSorter(exact=False),
        PairwiseSorter(),
        PairwiseSorter(adaptive=True),
    ],
)
def test_predicted_rank_of_other_analytic_sorters_falls_with_the_actual_rank(sorter):
    before, after = run_adversary(sorter, **SETTINGS)
    assert before.predicted - after.predicted > 0.1
    assert after.actual < 0.02


@pytest.mark.parametrize(
    "build",
    [
        lambda: PositionwiseLSTMSorter(length=16, hidden=16, layers=1),
        lambda: CNNSorter(length=16, blocks=3),
    ],
)
def test_trained_sorter_is_fooled(tmp_path, build):
    torch.manual_seed(0)
    sorter = build()
    train_sorter(
        sorter,
        length=16,
        batch_size=64,
        learning_rate=0.01,
        schedule=Step(3, 0.5),
        vectors_per_epoch=4000,
        epochs=4,
        patience=9,
        tolerance=0.0,
        checkpoints=tmp_path,
        seed=0,
    )
    _, after = run_adversary(sorter, **SETTINGS)
    assert after.predicted < after.actual - 0.1
