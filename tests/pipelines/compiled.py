"""Compiled pipelines for tests. Each is compiled once per process: it takes seconds beside torch's many modules."""

import functools
import json
from pathlib import Path
from typing import Any

from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from runtime import parameters

ROOT = Path(__file__).parents[2]
REVISION = "0123456789abcdef0123456789abcdef01234567"
VALUES = parameters.load(ROOT / "params.yaml")
SMALL_VALUES = parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])


def compile_text(values: dict[str, Any] = VALUES, *, push: bool = True, nodes: int = 1) -> str:
    """Return the compiled pipeline.

    Args:
        push: whether the last step pushes the outputs.
        nodes: machines of the training.
    """
    return _compile(json.dumps(values), push, nodes)


@functools.cache
def _compile(values: str, push: bool, nodes: int) -> str:
    cluster = resources.load()
    training = cluster.for_step("train_embedding").model_copy(update={"nodes": nodes})
    steps = {**cluster.steps, "train_embedding": training}
    # A run on this machine does not push, and keeps its checkpoints on the disk.
    checkpoints = cluster.checkpoints if push else None
    cluster = cluster.model_copy(update={"push": push, "steps": steps, "checkpoints": checkpoints})
    return kubeflow.compile_pipeline(json.loads(values), cluster, REVISION)
