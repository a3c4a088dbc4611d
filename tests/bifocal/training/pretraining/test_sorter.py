"""Training of sorters: synthetic scores, exact ranks, early stopping and resume."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from bifocal.sorters import (
    PositionwiseLSTMSorter,
    exact_ranks,
    load_sorter,
    save_sorter,
)
from bifocal.sorters.synthetic import synthetic_scores
from bifocal.training.pretraining.sorter import _SorterTask, held_out_scores, rank_l1, train_sorter
from bifocal.training.schedules import Step

ARGUMENTS: dict[str, Any] = {
    "length": 6,
    "batch_size": 32,
    "learning_rate": 0.01,
    "schedule": Step(2, 0.5),
    "vectors_per_epoch": 500,
    "patience": 9,
    "tolerance": 0.0,
    "seed": 3,
}


def small_sorter() -> PositionwiseLSTMSorter:
    torch.manual_seed(0)
    return PositionwiseLSTMSorter(length=6, shortest=4, hidden=8, layers=1)


def counted_ranks(scores: list[float]) -> list[float]:
    """Count the higher scores, and half of the other equal ones."""
    return [sum(b > a for b in scores) + (sum(b == a for b in scores) - 1) / 2 for a in scores]


@given(st.lists(st.sampled_from([-1.5, -0.1, 0.0, 0.3, 2.0, 7.0]), min_size=1, max_size=12))
def test_exact_ranks_count_higher_scores_and_share_ties(scores: list[float]) -> None:
    assert exact_ranks(torch.tensor([scores, scores])).tolist() == [counted_ranks(scores)] * 2


def test_synthetic_scores_are_four_distributions_in_equal_parts() -> None:
    scores = synthetic_scores(4000, 64, torch.Generator().manual_seed(0))
    gaps = scores.sort(dim=1).values.diff(dim=1)
    even = (gaps.amax(dim=1) - gaps.amin(dim=1)) < 1e-5
    in_range = scores.abs().amax(dim=1) <= 1
    assert in_range[even].all()
    assert even.float().mean().item() == pytest.approx(0.25, abs=0.03)
    # Normal vectors and nearly all mixtures leave [-1, 1]; a uniform vector never does, and is not
    # even.
    assert (in_range & ~even).float().mean().item() == pytest.approx(0.25, abs=0.05)
    assert scores[in_range & ~even].std().item() == pytest.approx(3**-0.5, abs=0.02)


def test_synthetic_scores_are_shuffled_and_reproducible() -> None:
    first, again = (synthetic_scores(500, 10, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, again)
    # The mean rank at every position is the mean of a random order.
    torch.testing.assert_close(
        exact_ranks(first).mean(dim=0), torch.full((10,), 4.5), atol=0.6, rtol=0
    )


def test_train_sorter_learns_to_rank_and_keeps_the_best_epoch(tmp_path: Path) -> None:
    sorter = small_sorter()
    before = rank_l1(sorter, held_out_scores(6, seed=3))
    rows: list[dict[str, float]] = []
    history = train_sorter(
        sorter, epochs=6, checkpoints=tmp_path, on_epoch=rows.append, **ARGUMENTS
    )
    assert rows == history
    assert [row["epoch"] for row in history] == list(range(1, 7))
    assert [row["learning_rate"] for row in history] == [0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025]
    best = min(row["held_out_l1"] for row in history)
    assert rank_l1(sorter, held_out_scores(6, seed=3)) == best < before / 2


class Interrupted(nn.Module):
    """A sorter that is interrupted in one of its training steps, of which an epoch has 16."""

    def __init__(self, tick: Callable[[], None]) -> None:
        super().__init__()
        self.sorter, self.tick = small_sorter(), tick

    def forward(self, scores: Tensor) -> Tensor:
        if self.training:
            self.tick()
        ranks: Tensor = self.sorter(scores)
        return ranks


@pytest.fixture(scope="module")
def whole_training(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[nn.Module, list[dict[str, float]]]:
    """A sorter after four epochs without an interruption, and the history."""
    sorter = Interrupted(lambda: None)
    return sorter, train_sorter(
        sorter, epochs=4, checkpoints=tmp_path_factory.mktemp("whole"), **ARGUMENTS
    )


@pytest.mark.parametrize("step", [1, 20, 33])
def test_interrupted_pretraining_resumes_bit_for_bit(
    whole_training: tuple[nn.Module, list[dict[str, float]]],
    tmp_path: Path,
    kill_at: Callable[[int], Callable[[], None]],
    step: int,
) -> None:
    whole, expected = whole_training
    with pytest.raises(KeyboardInterrupt):
        train_sorter(Interrupted(kill_at(step)), epochs=4, checkpoints=tmp_path, **ARGUMENTS)
    torch.rand(5)  # a new process has another random state
    resumed = Interrupted(lambda: None)
    assert train_sorter(resumed, epochs=4, checkpoints=tmp_path, **ARGUMENTS) == expected
    for name, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight)


@pytest.mark.parametrize("first_step", [0, 2])
def test_the_thread_for_a_gpu_draws_the_batches_of_a_cpu(
    monkeypatch: pytest.MonkeyPatch, first_step: int
) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    epochs = []
    for is_cuda in (False, True):
        task = _SorterTask(
            small_sorter(), Mock(is_cuda=is_cuda), 6, 4, 18, patience=1, tolerance=0.0, seed=3
        )
        count, batches = task.batches(1, first_step)
        epochs.append([batch.tolist() for batch in batches])
    assert count - first_step == len(epochs[0])
    assert epochs[0] == epochs[1]


def test_pretraining_stops_when_the_error_is_stable(tmp_path: Path) -> None:
    frozen = ARGUMENTS | {"learning_rate": 1e-12, "patience": 3, "tolerance": 0.01}
    assert len(train_sorter(small_sorter(), epochs=50, checkpoints=tmp_path, **frozen)) == 1 + 3


def test_load_sorter_freezes_the_weights_and_restores_the_lengths(tmp_path: Path) -> None:
    sorter = small_sorter()
    save_sorter(tmp_path, sorter, {"shortest": 4, "hidden": 8, "layers": 1})
    loaded = load_sorter(tmp_path)
    scores = torch.randn(3, 5)
    torch.testing.assert_close(loaded(scores), sorter(scores))
    assert not any(weight.requires_grad for weight in loaded.parameters())
    with pytest.raises(ValueError, match="ranks 4 to 6 scores, not 7"):
        loaded(torch.randn(3, 7))


def test_load_sorter_names_a_directory_without_a_sorter(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no sorter: config\.json is missing"):
        load_sorter(tmp_path)
