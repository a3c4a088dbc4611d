"""Running one stage: inputs checked, outputs written aside, tracked, and put in place when complete."""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from runtime import artifacts as artifact
from runtime import mlflow as tracking
from runtime.spec import Component, Params

ROOT = Path(__file__).parent.parent


def run_stage(
    component: Component,
    params: Params,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    values: Mapping[str, Any],
    arguments: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Run ``component`` and put its outputs in place.

    Under ``torchrun`` the first process does that; the others work for it, and write, track and report nothing.

    Args:
        inputs, outputs: the folder of each artifact.
        values: all parameters of the pipeline, for the tracking.
        arguments: what a step of a cluster is told beside its parameters.

    Returns:
        The stage's figures.

    Raises:
        FileNotFoundError: an input is missing or not complete.
    """
    run = import_module(f"{component.module}.run").run
    if int(os.environ.get("RANK", "0")) > 0:
        aside = {name: artifact.partial_of(path) for name, path in outputs.items()}
        run(params, **inputs, **aside, **(arguments or {}))
        return {}
    hashes = {name: artifact.artifact_hash(path) for name, path in inputs.items()}
    key = {
        "component": component.name,
        "parameters": params.model_dump(mode="json"),
        "inputs": hashes,
        "code": artifact.code_hash(ROOT, component.all_code_paths),
        "arguments": dict(arguments or {}),
    }
    partials = {name: artifact.begin(outputs[name], key) for name in component.outputs}
    tags = {"code": str(key["code"])} | {f"input.{name}": digest for name, digest in hashes.items()}
    with tracking.stage_run(component.name, values, tags) if component.has_parameters else nullcontext():
        figures: dict[str, float] = run(params, **inputs, **partials, **(arguments or {}))
        for name, partial in partials.items():
            artifact.commit(partial, outputs[name], key | {"figures": figures})
        tracking.log_metrics(figures)
    return figures
