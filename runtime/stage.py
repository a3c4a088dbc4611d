"""Run one stage: hash its inputs, write its outputs to partial directories, track it in MLflow, commit the outputs."""

import ctypes
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from runtime import artifacts, identity, shared_store
from runtime.lineage import lineage_run
from runtime.marks import replace_values
from runtime.mlflow import log_datasets, log_metrics, stage_run
from runtime.s3.checkpoints import delete_checkpoints, remote_checkpoints
from runtime.s3.remote_files import fetch_remote_files
from runtime.spec import Component, Params
from runtime.torchrun import is_main_process

ROOT = Path(__file__).parent.parent
KEEP_FREED_MEMORY = {-4: 0, -1: -1}  # M_MMAP_MAX and M_TRIM_THRESHOLD of glibc's mallopt


def stage_fingerprint(
    component: Component,
    params: Params,
    inputs: Mapping[str, Path],
    values: Mapping[str, Any],
    arguments: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return everything that the outputs of a stage depend on, from the arguments of ``run_stage``."""
    return {
        "component": component.name,
        # The paths that the user wrote: paths of local copies differ between machines.
        "parameters": replace_values(
            params.model_dump(mode="json"), component.user_paths(values.get(component.name, {}))
        ),
        "inputs": {name: artifacts.artifact_hash(path) for name, path in inputs.items()},
        "code": identity.source_hash(component),
        "packages": identity.installed_versions(identity.packages(component)),
        "arguments": dict(arguments or {}),
        "sources": dict(sources or {}),
    }


class StageResult(NamedTuple):
    """Result of one stage besides its artifacts."""

    metrics: dict[str, float]
    parameters: dict[str, str]  # text of each of the component's ``parameter_outputs``


def run_stage(
    component: Component,
    params: Params,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    values: Mapping[str, Any],
    arguments: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
) -> StageResult:
    """Run ``component``, commit its outputs and return its result; under ``torchrun``, only in the main process.
    ``values`` are all parameters, for MLflow, ``arguments`` of a cluster step; a killed run with other ``sources`` does
    not resume.
    """
    # Without this, page faults of new tensors take up to half of a training's processor time.
    with suppress(AttributeError, TypeError):  # macOS has no mallopt, Windows no CDLL(None)
        for option, value in KEEP_FREED_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, value)
    fetch_remote_files()
    run = import_module(f"{component.module}.run").run
    options = dict(arguments or {})
    given, inputs = inputs, {name: shared_store.resolve(path) for name, path in inputs.items()}
    if not is_main_process():
        partials = {name: artifacts.partial_path(outputs[name]) for name in component.outputs}
        run(params, **inputs, **partials, **options)
        return StageResult({}, {})
    fingerprint = stage_fingerprint(component, params, inputs, values, options, sources)
    stored = {name: shared_store.stored_path(name, fingerprint) for name in component.large_outputs}
    partials = {
        name: artifacts.open_partial(stored.get(name) or outputs[name], fingerprint) for name in component.outputs
    }
    tags = {"code": str(fingerprint["code"])} | {
        f"input.{name}": digest for name, digest in fingerprint["inputs"].items()
    }
    for name, path in inputs.items():
        if path == given[name]:  # in a shared store, files are mapped to memory instead of read
            artifacts.check_files(path)
    delete_checkpoints(inputs.values())
    tracked = stage_run(component.name, values, tags) if component.has_parameters else nullcontext()
    with tracked, lineage_run(component.name, fingerprint["inputs"] | fingerprint["sources"], outputs):
        log_datasets(inputs, component.name)
        start, used = time.perf_counter(), core_seconds()
        with remote_checkpoints(fingerprint, partials):
            returned = run(params, **inputs, **partials, **options)
        parameters = {name: str(returned[name]) for name in component.parameter_outputs}
        metrics = {name: value for name, value in returned.items() if name not in parameters}
        manifest = fingerprint | {"metrics": metrics}
        for name, place in stored.items():
            if place is not None:
                shared_store.commit_stored(partials[name], place, manifest, outputs[name])
        own = {outputs[name]: partial for name, partial in partials.items() if not stored.get(name)}
        for folder in sorted({output.parent for output in own}):
            artifacts.commit_all({output: own[output] for output in own if output.parent == folder}, manifest)
        log_datasets({name: shared_store.resolve(outputs[name]) for name in partials}, component.name)
        cost = {"duration_seconds": time.perf_counter() - start, "core_hours": (core_seconds() - used) / 3600}
        log_metrics(metrics | cost)
    return StageResult(metrics, parameters)


def core_seconds() -> float:
    """Return the seconds that this process and its ended children have used of all cores."""
    return sum(os.times()[:4])
