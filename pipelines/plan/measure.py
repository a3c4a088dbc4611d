"""Measurement of a stage in a process of its own, and the straight line through several measurements."""

import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from components.catalog import configurable_components
from runtime.job import stage_job
from runtime.mlflow.connection import connect, experiment_id
from runtime.workspace import Workspace


@dataclass(frozen=True)
class Usage:
    """Resources of one stage: seconds, peak bytes of host and GPU memory, artifact bytes."""

    seconds: float
    memory: float
    gpu: float
    disk: float


@dataclass(frozen=True)
class Estimate:
    """Value of a fitted line, and its standard error."""

    value: float
    error: float


class Processes:
    """Processes that run one stage each; they are copies of a server that has imported all stages once.

    Args:
        store: SQLite file of MLflow for the runs of the stages; the first one creates it.
    """

    def __init__(self, store: Path) -> None:
        self._address = f"sqlite:///{store.resolve()}"
        self._context = get_context("forkserver")
        stages = [f"{stage.module}.run" for stage in configurable_components().values()]
        # This module imports MLflow, which takes each process seconds otherwise.
        self._context.set_forkserver_preload([*stages, __name__, "mlflow.store.tracking.sqlalchemy_store"])

    def start_seconds(self) -> float:
        """Return the time that the first process takes to start, with its imports."""
        start = time.monotonic()
        self._call(_nothing)
        return time.monotonic() - start

    def run(self, stage: str, values: Mapping[str, Any], folder: Path) -> Usage:
        """Run a stage on the artifacts below ``folder``."""
        try:
            usage: Usage = self._call(_run, stage, dict(values), folder, self._address)
            return usage
        except BrokenProcessPool as error:
            raise ValueError("its process was killed, which mostly means that memory was short") from error

    def _call(self, function: Any, *arguments: Any) -> Any:
        with ProcessPoolExecutor(1, mp_context=self._context) as pool:
            return pool.submit(function, *arguments).result()


def estimate(amounts: Sequence[float], values: Sequence[float], amount: float) -> Estimate:
    """Return the line through the measurements at ``amount``; neither its start nor its slope is negative."""
    x, y = np.asarray(amounts, float), np.asarray(values, float)
    spread = ((x - x.mean()) ** 2).sum()
    slope = max(0.0, float(((x - x.mean()) * y).sum() / spread)) if spread else 0.0
    start = float(y.mean() - slope * x.mean())
    if start < 0:
        start, slope = 0.0, float((x * y).sum() / (x * x).sum())
    noise = float(np.sqrt(((y - start - slope * x) ** 2).sum() / max(1, len(x) - 2)))
    far = np.sqrt(1 / len(x) + (amount - x.mean()) ** 2 / spread) if spread else 1.0
    return Estimate(round(start + slope * amount, 6), round(noise * float(far), 6))


def _nothing() -> None:
    """Do nothing."""


def _run(name: str, values: Mapping[str, Any], folder: Path, address: str) -> Usage:
    with (folder / "stages.log").open("a") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    os.environ["MLFLOW_TRACKING_URI"] = address
    experiment_id(connect())  # a new store gets its tables now: they take seconds, which no stage of a pipeline spends
    stage = configurable_components()[name]
    start = time.monotonic()
    stage_job(stage, values).run(Workspace(str(folder)), values)
    seconds = time.monotonic() - start
    import torch

    gpu = torch.cuda.max_memory_reserved() if torch.cuda.is_initialized() else 0
    files = [path for output in stage.outputs for path in (folder / output).rglob("*") if path.is_file()]
    memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Usage(seconds, memory, gpu, sum(path.stat().st_size for path in files))
