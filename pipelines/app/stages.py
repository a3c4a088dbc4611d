"""Run stages one after another in this process; a stage whose outputs are up to date is skipped."""

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bifocal.durable import write_json
from bifocal.onnx.files import read_json
from components.catalog import configurable_components, pipeline_components
from pipelines.app.run_folder import ARTIFACTS, PARAMETERS, write_parameters
from runtime import parameters
from runtime.job import Workspace, stage_job
from runtime.spec import Component
from runtime.stage import Job, run_stage

SECONDS = "seconds.json"


def stages_of_run(values: Mapping[str, Any] | None = None) -> tuple[Component, ...]:
    """Return the stages that write the artifacts of a run, without the registration; with valid
    parameters, without unneeded stages."""
    return tuple(stage for stage in pipeline_components(values=values) if not stage.side_effects)


def check_stages(values: Mapping[str, Any], stages: Iterable[Component]) -> None:
    """Raise ``ParameterError`` if a section of ``stages`` is wrong; others are only known by
    name."""
    parameters.validate(values, stages, others=configurable_components())


def run_stages(
    folder: Path,
    values: dict[str, Any],
    stages: Iterable[Component],
    sources: Sequence[Path] = (),
) -> None:
    """Check the parameters of ``stages``, write all to ``params.yaml`` of ``folder``, and run the
    stages in order.

    A killed run goes on where it was: complete stages are skipped, and an incomplete one resumes
    from its checkpoint.
    """
    stages = list(stages)
    check_stages(values, stages)
    file = folder / PARAMETERS
    if not file.is_file() or parameters.load(file) != values:
        write_parameters(folder, values)
    run_checked(folder, values, stages, sources)


def run_checked(
    folder: Path,
    values: Mapping[str, Any],
    stages: Iterable[Component],
    sources: Sequence[Path] = (),
) -> None:
    """Run stages in order on the artifacts of ``folder``, with valid parameters.

    A stage that one of ``sources``, other run folders, has run with equal parameters, inputs and
    code is a link to it. ``seconds.json`` gets the seconds of each stage that ran.
    """
    workspace = Workspace((folder / ARTIFACTS).as_posix())
    stages = list(stages)
    for number, stage in enumerate(stages, start=1):
        title = f"[{number}/{len(stages)}] {stage.name}"
        job = stage_job(stage, values, workspace)
        if job.is_complete() or _link_equal(job, sources):
            click.secho(f"{title}: up to date", dim=True, err=True)
            continue
        click.secho(f"{title}: {stage.summary}", bold=True, err=True)
        start, file = time.monotonic(), folder / SECONDS
        try:
            run_stage(job)
        finally:
            seconds = read_json(file) if file.is_file() else {}
            seconds[stage.name] = seconds.get(stage.name, 0.0) + time.monotonic() - start
            write_json(file, seconds)
        click.secho(f"{title}: {time.monotonic() - start:.0f} s", dim=True, err=True)


def _link_equal(job: Job, sources: Sequence[Path]) -> bool:
    """Link the outputs of a job to the same outputs of another run; return whether there are
    any."""
    for path in job.outputs.values():
        if sources and path.is_symlink():  # of former parameters, or its target is gone
            path.unlink()
    for source in sources:
        others = {name: source / ARTIFACTS / name for name in job.outputs}
        if replace(job, outputs=others).is_complete():
            for name, path in job.outputs.items():
                shutil.rmtree(path, ignore_errors=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(os.path.relpath(others[name].resolve(), path.parent.resolve()))
            return True
    return False
