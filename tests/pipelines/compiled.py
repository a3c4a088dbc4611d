"""Compiled pipelines for tests, each compiled once per process."""

import functools
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from components.catalog import pipeline_components
from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.kubeflow.flows import FlowName
from runtime import parameters

ROOT = Path(__file__).parents[2]
REVISION = "0123456789abcdef0123456789abcdef01234567"
VALUES = parameters.load(ROOT / "params.yaml")
SMALL_VALUES = parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])
STAGES = pipeline_components(values=VALUES)
"""Stages of the default pipeline."""
Documents = tuple[dict[str, Any], dict[str, Any]]
"""A compiled pipeline, and the Kubernetes settings of each executor."""


def compile_text(
    values: dict[str, Any] = VALUES,
    *,
    push: bool = True,
    nodes: int = 1,
    flow: FlowName = "train",
    promote: bool = True,
    cache: bool = True,
    canary: bool = False,
) -> str:
    """Return the compiled pipeline.

    Args:
        push: whether the last step pushes the outputs.
        nodes: machines of the training.
        flow: graph of the stages.
        promote: whether an accepted version is promoted.
        cache: whether finished steps come from the cache.
        canary: whether services decide before a promotion.
    """
    return _compile(json.dumps(values), push, nodes, flow, promote, cache, canary)


@functools.cache
def _compile(
    values: str, push: bool, nodes: int, flow: FlowName, promote: bool, cache: bool, canary: bool
) -> str:
    cluster = resources.load()
    training = cluster.for_step("train_embedding").model_copy(update={"nodes": nodes})
    steps = {**cluster.steps, "train_embedding": training}
    # A run on this machine does not push, and keeps its checkpoints on the disk.
    checkpoints = cluster.checkpoints if push else None
    changes = {
        "push": push,
        "promote": promote,
        "cache": cache,
        "steps": steps,
        "checkpoints": checkpoints,
    }
    services = resources.CanarySettings(
        services=["dns+http://search:8080"], folder="s3://bucket/canary", hours=72
    )
    cluster = cluster.model_copy(update=changes | {"canary": services if canary else None})
    with quick_callers():
        return kubeflow.compile_pipeline(json.loads(values), cluster, REVISION, flow)


@contextmanager
def quick_callers() -> Iterator[None]:
    """Let kfp read names of callers without their source: a compilation in a process of xdist takes
    0.3 s, not 7."""
    with patch.object(inspect, "stack", callers):
        yield


def callers() -> list[inspect.FrameInfo]:
    """Return the frames of the callers as ``inspect.stack`` does, without their source.

    kfp reads the name of a caller for every setting of a task. In a process of xdist, whose
    outermost frames have no file, ``inspect.stack`` looks through all modules for each of them.
    """
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        frames.append(
            inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
        )
        frame = frame.f_back
    return frames


def documents(text: str) -> Documents:
    """Return a compiled pipeline, and the Kubernetes settings of each of its executors."""
    pipeline, platform = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return pipeline, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


def compiled(nodes: int = 1, **changes: Any) -> Documents:
    """Return the default pipeline with other values."""
    return documents(compile_text(parameters.merge(VALUES, changes), nodes=nodes))


def tasks_of(pipeline: dict[str, Any]) -> dict[str, Any]:
    tasks: dict[str, Any] = pipeline["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    return tasks


def task_name(component: str | None) -> str:
    assert component is not None
    return component.replace("_", "-")


def arguments(task: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.get("runtimeValue", {}).get("constant", value)
        for name, value in task["inputs"]["parameters"].items()
    }
