"""Run one stage: resolve its inputs, track it in MLflow, run it in partial directories, commit its
outputs."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from bifocal.durable import plain
from bifocal.durable.sources import read_module
from runtime import artifacts, identity, shared_store
from runtime.mlflow import log_datasets, log_metrics, stage_run
from runtime.process import core_seconds, is_main_process, keep_freed_memory, under_torchrun
from runtime.s3.checkpoints import delete_checkpoints, remote_checkpoints
from runtime.s3.remote_files import fetch_remote_files
from runtime.spec import Component, Params, flatten, replace_values

TIMES = ("_ms", "_seconds", "_per_second")
"""Ends of the names of metrics that differ from run to run: MLflow has them, and equal inputs give
equal outputs."""


@dataclass(frozen=True)
class Job:
    """One run of a component, with everything that its outputs depend on."""

    component: Component
    params: Params
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    values: Mapping[str, Any]  # all parameters as the user wrote them, for MLflow
    arguments: Mapping[str, Any] = field(
        default_factory=dict
    )  # of ``run``, besides parameters and artifacts
    sources: Mapping[str, str] = field(default_factory=dict)  # digest of each user file on S3

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that the outputs depend on."""
        # Paths of local copies differ between machines.
        written = self.component.user_paths(self.values.get(self.component.name, {}))
        modules = identity.user_modules(self.params.model_dump(mode="json"))
        hashes = {name: read_module(file.read_bytes()).hash for name, file in modules.items()}
        return {
            **({"modules": hashes} if hashes else {}),
            "component": self.component.name,
            "parameters": replace_values(self.params.model_dump(mode="json"), written),
            "inputs": {name: artifacts.artifact_hash(path) for name, path in self.inputs.items()},
            "code": identity.source_hash(self.component),
            "packages": identity.installed_versions(identity.packages(self.component)),
            "arguments": dict(self.arguments),
            "sources": dict(self.sources),
        }

    def is_complete(self) -> bool:
        """Whether the outputs are those of this very job: same inputs, parameters, code and
        packages."""
        try:
            expected = plain(self.fingerprint())
            manifests = [artifacts.read_manifest(path) for path in self.outputs.values()]
        except (FileNotFoundError, ValueError):
            return False
        return all(artifacts.fingerprint_of(manifest) == expected for manifest in manifests)


class StageResult(NamedTuple):
    """Result of one stage besides its artifacts."""

    metrics: dict[str, float]
    parameters: dict[str, str]  # text of each of the component's ``parameter_outputs``


def run_stage(job: Job) -> StageResult:
    """Run a job, commit its outputs and return its result; under ``torchrun``, only in the main
    process.

    A killed job goes on from the files in its partial directories if its fingerprint is the same.
    """
    keep_freed_memory()
    fetch_remote_files()
    run = import_module(job.component.module).run
    inputs = {name: shared_store.resolve(path) for name, path in job.inputs.items()}
    if under_torchrun() and job.component.data_parallel:
        _compare_with_other_processes(job, inputs)
    elif is_main_process():
        _check_files(job, inputs)
    if not is_main_process():
        partials = {name: artifacts.partial_path(path) for name, path in job.outputs.items()}
        run(job.params, **inputs, **partials, **job.arguments)
        return StageResult({}, {})
    fingerprint = job.fingerprint()
    places = shared_store.places(job.outputs, job.component.large_outputs, fingerprint)
    partials = {name: artifacts.open_partial(place, fingerprint) for name, place in places.items()}
    delete_checkpoints(inputs.values())
    metrics: dict[str, float] = {}
    repeatable: dict[str, float] = {}
    with (
        tracked(job, inputs, fingerprint, metrics),
        shared_store.committed(job.outputs, places, fingerprint | {"metrics": repeatable}),
        remote_checkpoints(fingerprint, partials),
    ):
        returned = dict(run(job.params, **inputs, **partials, **job.arguments))
        parameters = {name: str(returned.pop(name)) for name in job.component.parameter_outputs}
        metrics.update(returned)
        repeatable.update(
            {name: value for name, value in returned.items() if not name.endswith(TIMES)}
        )
    return StageResult(metrics, parameters)


def _check_files(job: Job, inputs: Mapping[str, Path]) -> None:
    for name, path in inputs.items():
        if path == job.inputs[name]:  # in a shared store, files are mapped to memory, not read
            artifacts.check_files(path)


def _compare_with_other_processes(job: Job, inputs: Mapping[str, Path]) -> None:
    """Let the training compare all processes before its first step: each machine may have its own
    copy of inputs and code."""
    from bifocal.training import distributed

    try:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # one process of a machine reads its files
            _check_files(job, inputs)
        values = flatten(plain(job.fingerprint()))
        distributed.identity = {name: str(value) for name, value in values.items()}
    except (OSError, ValueError) as error:  # the others learn it, and end too
        distributed.identity = {distributed.PROBLEM: str(error)}


@contextmanager
def tracked(
    job: Job,
    inputs: Mapping[str, Path],
    fingerprint: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> Iterator[None]:
    """Track a stage in MLflow; log its ``metrics`` and its cost at the end."""
    name = job.component.name
    tags = {"code": str(fingerprint["code"])}
    tags |= {f"input.{artifact}": digest for artifact, digest in fingerprint["inputs"].items()}
    run = stage_run(name, job.values, tags) if job.component.has_parameters else nullcontext()
    with run:
        log_datasets(inputs, name)
        start, used = time.perf_counter(), core_seconds()
        yield
        log_datasets(
            {output: shared_store.resolve(path) for output, path in job.outputs.items()}, name
        )
        cost = {
            "duration_seconds": time.perf_counter() - start,
            "core_hours": (core_seconds() - used) / 3600,
        }
        log_metrics({**metrics, **cost})
