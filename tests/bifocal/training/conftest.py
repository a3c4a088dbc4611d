"""A small model and a short training of it."""

from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch
from torch import nn

from bifocal.batch import ImageCaptionPairs
from bifocal.losses import TripletLoss
from bifocal.models import TwoBranchModel, build_model
from bifocal.training import fit
from bifocal.training.batches.captions import epoch_batches
from bifocal.training.schedules import MultiStep
from bifocal.training.validators.recall import RecallValidator

CONFIGURATION: dict[str, Any] = {
    "model": {
        "name": "TwoBranchModel",
        "dim": 16,
        "image_encoder": {"name": "SMILEEncoder"},
        "text_encoder": {"name": "SRUEncoder", "layers": 2, "dropout": 0.1},
    },
    "feature_dim": 12,
    "text_dim": 8,
    "text_format": "tokens",
}


class NewModel(Protocol):
    def __call__(self, **changes: Any) -> TwoBranchModel: ...


class Train(Protocol):
    def __call__(
        self, checkpoints: Path, loss: nn.Module | None = None, model: nn.Module | None = None, **changes: Any
    ) -> tuple[nn.Module, list[dict[str, float]]]: ...


@pytest.fixture(scope="session")
def configuration(pairs: ImageCaptionPairs) -> dict[str, Any]:
    """Of a model for ``pairs``."""
    return CONFIGURATION | {"vocabulary_size": len(pairs.text.vocabulary)}


@pytest.fixture(scope="session")
def new_model(configuration: dict[str, Any]) -> NewModel:
    """``new_model()``: always with the same weights."""

    def build(**changes: Any) -> TwoBranchModel:
        torch.manual_seed(5)
        return build_model(**configuration | {"model": configuration["model"] | changes})

    return build


@pytest.fixture(scope="session")
def train(pairs: ImageCaptionPairs, new_model: NewModel) -> Train:
    """``train(checkpoints)``: the model after three epochs of five steps, and its history."""

    def run(
        checkpoints: Path, loss: nn.Module | None = None, model: nn.Module | None = None, **changes: Any
    ) -> tuple[nn.Module, list[dict[str, float]]]:
        model = model or new_model()
        arguments: dict[str, Any] = {
            "sampler": partial(epoch_batches, pairs.image_of_caption, 16, 1, 3),
            "epochs": 3,
            "optimizer": {"name": "Adam"},
            "learning_rate": 0.01,
            "schedule": MultiStep([2], 0.5),
            "max_grad_norm": 2.0,
            "frozen_until": {},
            "ema_decay": 0.0,
            "precision": "float32",
            "micro_batch_size": None,
            "checkpoint_every_steps": 2,
            "seed": 3,
        }
        return model, fit(
            model, loss or TripletLoss(), pairs, RecallValidator(pairs), checkpoints=checkpoints, **arguments | changes
        )

    return run
