"""A stage that trains on little data and keeps checkpoints, in the place of ``train_embedding``.

``python -m tests.runtime.s3.toy_training FOLDER`` runs it on a machine of its own, which is killed
after an upload.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import boto3
import torch
from torch import Tensor, nn

from bifocal.serialization import write_tensors
from bifocal.training.checkpoints import RunState
from bifocal.training.loop import TrainingTask, run_epochs
from runtime.spec import Component, Params
from runtime.stage import Job, run_stage

STEPS, EPOCHS = 3, 4
Tick = Callable[[int], None]
_ticks: list[Tick] = []


class ToyTask(TrainingTask[Tensor]):
    """Least squares on random batches; calls ``tick`` with the number of the step, from 1, in this
    process."""

    monitor, higher_is_better = "error", False

    def __init__(self, tick: Tick) -> None:
        self.tick, self.steps = tick, 0
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)

    def batches(self, epoch: int, first_step: int) -> tuple[int, list[Tensor]]:
        return STEPS, [torch.randn(8, 3) for _ in range(STEPS)][first_step:]

    def start_epoch(self, epoch: int) -> None:
        self.model.train()

    def backward(self, batch: Tensor, epoch: int, step: int) -> Tensor:
        self.steps += 1
        self.tick(self.steps)
        loss: Tensor = (self.model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        return loss.detach()

    def validate(self) -> dict[str, float]:
        return {"error": self.model.weight.sub(1).abs().sum().item()}


def _train(params: Params, *, model: Path) -> dict[str, float]:
    task = ToyTask(_ticks[-1])
    optimizer = torch.optim.Adam(task.model.parameters())
    state = RunState(model / "checkpoints" / "first", {"model": task.model}, optimizer, task.model)
    run_epochs(task, state, epochs=EPOCHS, learning_rate=0.1)
    state.load_best(task.model)
    write_tensors(model / "weights", task.model.state_dict(), {})
    return {"steps": float(task.steps)}


def _read(params: Params, *, model: Path) -> dict[str, float]:
    return {}


# A stage is found by the name of its module.
for _name, _function in (("train_toy", _train), ("read_toy", _read)):
    _module = ModuleType(f"toy.{_name}.run")
    _module.__dict__["run"] = _function
    sys.modules[_module.__name__] = _module


def toy(name: str, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Component:
    """Return a declaration of ``train_toy`` or ``read_toy``."""
    return Component(
        name=name,
        summary="",
        image="cpu",
        params=Params,
        inputs=inputs,
        outputs=outputs,
        has_parameters=False,
        package="toy",
    )


def train(folder: Path, tick: Tick = lambda step: None, seed: int = 0) -> int:
    """Run the stage on a machine whose disk is ``folder``; return the steps."""
    _ticks.append(tick)
    component = toy("train_toy", outputs=("model",))
    return int(
        run_stage(Job(component, Params(seed=seed), {}, {"model": folder / "model"}, {})).metrics[
            "steps"
        ]
    )


def kill_after_an_upload(step: int) -> None:
    """Kill this process in the third epoch, when a checkpoint is in S3."""
    if step == 2 * STEPS + 1:
        client = boto3.client("s3")
        while (
            client.list_objects_v2(Bucket="bucket", Prefix="checkpoints")["KeyCount"] < 3
        ):  # the index is the last
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    train(Path(sys.argv[1]), kill_after_an_upload)
