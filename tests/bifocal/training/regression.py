"""A small regression that run_epochs trains."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bifocal.training.checkpoints import RunState
from bifocal.training.loop import Row, TrainingTask, run_epochs
from bifocal.training.schedules import Step

STEPS = 4


@dataclass
class Regression(TrainingTask[Tensor]):
    """Least squares on random batches, with dropout, so that a step depends on all random numbers
    before it."""

    model: nn.Module
    tick: Callable[[], None] = lambda: None
    metrics: Sequence[float] | None = None
    target: float = 1.0
    calls: list[tuple[int, int]] = field(default_factory=list)

    monitor = "error"
    higher_is_better = False

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterable[Tensor]]:
        generator = torch.Generator().manual_seed(epoch)
        return STEPS, torch.randn(STEPS, 8, 3, generator=generator)[first_step:]

    def start_epoch(self, epoch: int) -> None:
        self.model.train()

    def backward(self, batch: Tensor, epoch: int, step: int) -> Tensor:
        self.calls.append((epoch, step))
        self.tick()
        loss = (self.model(batch) - self.target * batch.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        return loss.detach()

    def validate(self) -> dict[str, float]:
        self.model.eval()
        if self.metrics is not None:
            return {"error": self.metrics[self.calls[-1][0]]}
        x = torch.randn(64, 3, generator=torch.Generator().manual_seed(99))
        with torch.no_grad():
            return {"error": (self.model(x) - x.sum(dim=1, keepdim=True)).square().mean().item()}

    def describe(self, batch: Tensor) -> dict[str, Any]:
        return {"first": batch[0, 0].item()}


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)
    )


def train(directory: Path, **changes: Any) -> tuple[Regression, RunState, list[Row]]:
    model = new_model()
    fields = {name: changes.pop(name) for name in ("tick", "metrics", "target") if name in changes}
    task = Regression(model, **fields)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = RunState(directory, {"model": model}, optimizer, eval_model=model)
    arguments: dict[str, Any] = {
        "epochs": 3,
        "learning_rate": 0.1,
        "schedule": Step(2, 0.5),
        **changes,
    }
    return task, state, run_epochs(task, state, **arguments)


def equal_weights(first: nn.Module, second: nn.Module) -> bool:
    """Whether two modules are equal bit for bit."""
    state = second.state_dict()
    return all(torch.equal(state[name], tensor) for name, tensor in first.state_dict().items())
