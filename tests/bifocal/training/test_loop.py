"""run_epochs with a small regression: schedule, clipping, history, best epoch, checkpoints and
errors."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bifocal.serialization import read_tensors
from bifocal.training.checkpoints import RunState
from bifocal.training.loop import Row, run_epochs
from bifocal.training.schedules import Cosine
from tests.bifocal.training.regression import STEPS, Regression, new_model, train


def test_history_has_one_row_per_epoch(tmp_path: Path) -> None:
    rows: list[Row] = []
    task, _, history = train(tmp_path, on_epoch=rows.append)
    assert rows == history
    assert [list(row) for row in history] == [
        ["epoch", "steps", "loss", "learning_rate", "error"]
    ] * 3
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert [row["learning_rate"] for row in history] == [0.1, 0.1, 0.05]
    assert task.calls == [(epoch, step) for epoch in range(3) for step in range(STEPS)]


def test_schedule_is_evaluated_before_every_step(tmp_path: Path) -> None:
    rates: list[float] = []

    class Recorder(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            rates.append(self.param_groups[0]["lr"])

    model = new_model()
    state = RunState(
        tmp_path, {"model": model}, Recorder(model.parameters(), lr=1.0), eval_model=model
    )
    run_epochs(Regression(model), state, epochs=2, learning_rate=0.4, schedule=Cosine())
    assert rates == pytest.approx([0.2 * (1 + math.cos(math.pi * step / 8)) for step in range(8)])


@pytest.mark.parametrize(("limit", "expected"), [(0.5, 0.5), (None, None)])
def test_max_grad_norm_clips_gradients(
    tmp_path: Path, limit: float | None, expected: float | None
) -> None:
    norms: list[float] = []

    class Recorder(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            gradients = [p.grad for p in self.param_groups[0]["params"] if p.grad is not None]
            norms.append(torch.cat([gradient.flatten() for gradient in gradients]).norm().item())

    model = new_model()
    state = RunState(
        tmp_path, {"model": model}, Recorder(model.parameters(), lr=1.0), eval_model=model
    )
    run_epochs(
        Regression(model, target=100.0), state, epochs=1, learning_rate=0.1, max_grad_norm=limit
    )
    assert all(
        norm == pytest.approx(expected, rel=1e-4) if expected else norm > 1 for norm in norms
    )


@pytest.mark.parametrize(
    ("metrics", "higher_is_better", "best"),
    [
        ([3.0, 1.0, 2.0], False, 2),
        ([3.0, 1.0, 2.0], True, 1),
        ([1.0, 1.0, 1.0], True, 1),
        ([math.nan, 1.0, 2.0], True, 3),
        ([math.nan, math.nan, math.nan], True, 1),
        ([1.0, math.nan, 2.0], False, 1),
    ],
)
def test_best_epoch_is_kept(
    tmp_path: Path, metrics: list[float], higher_is_better: bool, best: int
) -> None:
    after_epoch: list[dict[str, Tensor]] = []
    model = new_model()
    task = Regression(model, metrics=metrics)
    task.higher_is_better = higher_is_better
    state = RunState(
        tmp_path, {"model": model}, torch.optim.Adam(model.parameters()), eval_model=model
    )

    def keep(row: Row) -> None:
        after_epoch.append({name: tensor.clone() for name, tensor in model.state_dict().items()})

    run_epochs(task, state, epochs=3, learning_rate=0.1, on_epoch=keep)
    weights, notes = read_tensors(tmp_path / "best.safetensors")
    assert notes["epoch"] == best
    state.load_best(model)
    for name, tensor in after_epoch[best - 1].items():
        assert torch.equal(weights[name], tensor)
        assert torch.equal(model.state_dict()[name], tensor)


def test_task_without_a_monitor_keeps_the_last_epoch_only(tmp_path: Path) -> None:
    model = new_model()
    task = Regression(model)
    task.monitor = None
    state = RunState(tmp_path, {"model": model}, torch.optim.Adam(model.parameters()))
    run_epochs(task, state, epochs=2, learning_rate=0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["last.safetensors"]
    last, progress = read_tensors(tmp_path / "last.safetensors")
    assert (progress["epoch"], progress["step"], len(progress["history"])) == (2, 0, 2)
    for name, tensor in model.state_dict().items():
        assert torch.equal(last[f"model.model.{name}"], tensor)


@pytest.mark.parametrize("target", [math.nan, math.inf])
def test_nonfinite_loss_stops_the_run_and_describes_the_batch(
    tmp_path: Path, target: float
) -> None:
    with pytest.raises(
        FloatingPointError, match=r"the loss is (nan|inf) at epoch 1, step 0.*max_grad_norm"
    ):
        train(tmp_path, target=target)
    report = json.loads((tmp_path / "nonfinite_loss.json").read_text())
    assert report.keys() == {"epoch", "step", "first"}
    weights, _ = read_tensors(tmp_path / "nonfinite_loss.safetensors")
    for name, tensor in new_model().named_parameters():
        assert torch.equal(weights[f"model.model.{name}"], tensor)
    assert not (tmp_path / "last.safetensors").exists()


def test_converged_task_stops_early_and_stays_stopped(tmp_path: Path) -> None:
    class Converging(Regression):
        def is_converged(self, history: Sequence[Row]) -> bool:
            return len(history) == 2

    for _ in range(2):
        model = new_model()
        state = RunState(
            tmp_path, {"model": model}, torch.optim.Adam(model.parameters()), eval_model=model
        )
        assert len(run_epochs(Converging(model), state, epochs=9, learning_rate=0.1)) == 2


def test_progress_lines_name_the_training_and_its_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, metrics=[3.0, 1.5, 2.0])
    lines = [line for line in capsys.readouterr().err.splitlines() if "; about" in line]
    assert len(lines) == 3
    assert lines[1].startswith("training, epoch 2/3: loss ")
    assert lines[1].endswith(", error 1.5; about 0 s left")
