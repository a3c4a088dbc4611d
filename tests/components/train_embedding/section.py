"""Section train_embedding of the tests: one short phase on small scenes."""

from pathlib import Path
from typing import Any

from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters

PHASE: dict[str, Any] = {
    "batches": {"name": "DistinctImageBatches", "batch_size": 16},
    "loss": "InfoNCELoss",
    "epochs": 12,
    "learning_rate": 0.01,
    "schedule": {"name": "MultiStep", "milestones": [8], "gamma": 0.5},
    "frozen_until": {},
}
SECTION: dict[str, Any] = {
    "model": {
        "name": "TwoBranchModel",
        "dim": 32,
        "image_encoder": "SMILEEncoder",
        "text_encoder": "BagOfWordsEncoder",
    },
    "phases": [PHASE],
    "precision": "float32",
    "checkpoint_every_seconds": 1000.0,
}


def validated(phase: dict[str, Any] | None = None, **changes: Any) -> TrainEmbeddingParams:
    """The section of params.yaml with one phase, changed as the test says."""
    values = parameters.load(Path(__file__).parents[3] / "params.yaml")["train_embedding"]
    section = values | SECTION | {"phases": [PHASE | (phase or {})]} | changes
    params = parameters.validate({"seed": 0, "train_embedding": section}, [COMPONENT])[
        "train_embedding"
    ]
    assert isinstance(params, TrainEmbeddingParams)
    return params
