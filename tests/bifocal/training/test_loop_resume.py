"""run_epochs after a kill, after SIGTERM and after its end: the next run continues with the same
bits."""

import signal
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.serialization import read_tensors
from bifocal.training.checkpoints import RunState, checkpoint_hook
from bifocal.training.loop import run_epochs
from bifocal.training.schedules import Step
from tests.bifocal.training.regression import STEPS, Regression, equal_weights, new_model, train

Interrupt = Callable[[int], Callable[[], None]]


@pytest.mark.parametrize("every", [inf, 0.0])
@pytest.mark.parametrize("step", [1, 2, STEPS, STEPS + 1, 3 * STEPS])
def test_killed_run_resumes_bit_for_bit(
    tmp_path: Path, kill_at: Interrupt, step: int, every: float
) -> None:
    expected, _, history = train(tmp_path / "whole")
    arguments: dict[str, Any] = {"checkpoint_every_seconds": every}
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", tick=kill_at(step), **arguments)
    resumed, _, again = train(tmp_path / "killed", **arguments)
    assert again == history
    assert equal_weights(expected.model, resumed.model)


@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS, 3 * STEPS])
def test_sigterm_finishes_the_step_and_the_next_run_resumes(
    tmp_path: Path, sigterm_at: Interrupt, step: int
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    expected, _, history = train(tmp_path / "whole")
    model = new_model()
    task = Regression(model, sigterm_at(step))
    state = RunState(
        tmp_path / "run", {"model": model}, torch.optim.Adam(model.parameters(), lr=0.1), model
    )
    arguments: dict[str, Any] = {"epochs": 3, "learning_rate": 0.1, "schedule": Step(2, 0.5)}
    with pytest.raises(SystemExit) as end:
        run_epochs(task, state, **arguments)
    assert end.value.code == 143
    assert len(task.calls) == step
    assert signal.getsignal(signal.SIGTERM) is handler
    resumed, _, again = train(tmp_path / "run")
    assert task.calls + resumed.calls == expected.calls  # no step is lost or repeated
    assert again == history
    assert equal_weights(expected.model, resumed.model)


@pytest.mark.parametrize(
    ("period", "steps"),
    [(0.0, [1, 2, 3]), (10.0, [1, 2, 3]), (15.0, [2]), (30.0, [3]), (31.0, []), (inf, [])],
)
def test_checkpoints_inside_an_epoch_are_a_period_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period: float, steps: list[int]
) -> None:
    """Each step takes 10 s; the last one of an epoch is followed by the epoch's own checkpoint."""
    clock = [0.0]
    monkeypatch.setattr("bifocal.training.loop.time.monotonic", lambda: clock[0])

    def step() -> None:
        clock[0] += 10.0

    saved: list[tuple[int, int]] = []

    def hook(*, is_last: bool) -> None:
        progress = read_tensors(tmp_path / "last.safetensors")[1]
        saved.append((progress["epoch"], progress["step"]))

    with checkpoint_hook(hook):
        train(tmp_path, tick=step, checkpoint_every_seconds=period)
    inside = [(epoch, step) for epoch in range(3) for step in steps]
    assert saved == sorted([*inside, (1, 0), (2, 0), (3, 0)])


def test_hook_is_called_after_each_checkpoint_and_knows_the_last(
    tmp_path: Path, sigterm_at: Interrupt
) -> None:
    calls: list[tuple[int, int, bool]] = []

    def hook(*, is_last: bool) -> None:
        progress = read_tensors(tmp_path / "last.safetensors")[1]
        calls.append((progress["epoch"], progress["step"], is_last))

    with checkpoint_hook(hook), pytest.raises(SystemExit):
        train(tmp_path, tick=sigterm_at(STEPS + 1), checkpoint_every_seconds=0.0)
    train(tmp_path)
    assert calls == [(0, 1, False), (0, 2, False), (0, 3, False), (1, 0, False), (1, 1, True)]


def test_sigterm_during_validation_saves_the_finished_epoch(
    tmp_path: Path, sigterm_at: Interrupt
) -> None:
    expected, _, history = train(tmp_path / "whole")
    terminate = sigterm_at(2)
    with pytest.raises(SystemExit):
        train(tmp_path / "run", on_epoch=lambda row: terminate())
    resumed, _, again = train(tmp_path / "run")
    assert resumed.calls == [(2, step) for step in range(STEPS)]
    assert again == history
    assert equal_weights(expected.model, resumed.model)


def test_finished_run_returns_its_history_without_training(tmp_path: Path) -> None:
    expected, _, history = train(tmp_path)
    task, _, again = train(tmp_path)
    assert task.calls == []
    assert again == history
    assert equal_weights(expected.model, task.model)
