"""One training process; test_distributed.py starts it as ``torchrun worker.py FOLDER``."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.losses import SigmoidLoss
from bifocal.models import build_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.scores import Scores
from bifocal.text import TextStore
from bifocal.training import FitOptions, TrainingPhase, World, fit, torchrun_world
from bifocal.training.batches import CaptionBatches
from bifocal.training.batches.base import PreparedBatches
from bifocal.training.validators import model_ranks, recall_metrics


class Stopping(SigmoidLoss):
    """Loss that sends SIGTERM to the last rank at one step."""

    def __init__(self, stop_at: int) -> None:
        super().__init__()
        self.stop_at, self.steps = stop_at, 0

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        self.steps += 1
        if self.steps == self.stop_at and World.current().rank == World.current().size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().forward(scores, matches)


def train(folder: Path, configuration: dict[str, Any], checkpoints: str, **changes: Any) -> Any:
    """Return the history or the exit code, and the weights."""
    images, captions = (
        pd.read_parquet(folder / f"{name}.parquet") for name in ("images", "captions")
    )
    tables = Dataset(images, captions, pd.DataFrame(), folder)
    pairs = ImageCaptionPairs(tables, FeatureStore(folder / "features"), TextStore(folder / "text"))
    torch.manual_seed(5 + World.current().rank)  # rank 0 broadcasts its weights
    model = build_model(**configuration)
    sampler = CaptionBatches(batch_size=16).sampler(pairs.image_of_caption, seed=3)
    optimizer, stop_at = {"name": "SGD", "momentum": 0.9}, changes.pop("stop_at", 0)
    try:
        result: Any = fit(
            model,
            TrainingPhase(CaptionBatches(), Stopping(stop_at), epochs=2, learning_rate=0.5),
            PreparedBatches(pairs, sampler),
            lambda model: recall_metrics(model_ranks(model, pairs)),
            checkpoints=folder / f"machine{World.current().rank}" / checkpoints,
            options=FitOptions(optimizer, ema_decay=0.5, checkpoint_every_seconds=0.0, **changes),
            seed=3,
        )
    except SystemExit as end:
        result = end.code
    return result, {
        name: tensor.tolist()
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    }


def main(folder: Path) -> None:
    """Train once without interruption, once in micro-batches and once in two runs; write the
    results of each rank."""
    configuration = json.loads((folder / "configuration.json").read_text())
    with torchrun_world() as (world, _):
        results = {
            "plain": train(folder, configuration, f"plain{world.size}"),
            "micro": train(folder, configuration, f"micro{world.size}", micro_batch_size=3),
            "stopped": train(folder, configuration, f"parts{world.size}", stop_at=7),
            "continued": train(folder, configuration, f"parts{world.size}"),
        }
        (folder / f"results{world.rank}of{world.size}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
