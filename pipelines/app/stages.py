"""Run stages one after another in this process; a stage whose outputs are up to date is skipped."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from components.catalog import configurable_components, pipeline_components
from pipelines.app.run_folder import ARTIFACTS, PARAMETERS, write_parameters
from runtime import parameters
from runtime.job import Workspace, stage_job
from runtime.spec import Component
from runtime.stage import run_stage


def stages_of_run() -> tuple[Component, ...]:
    """Return the stages that write the artifacts of a run; registration is none of them."""
    return tuple(stage for stage in pipeline_components() if not stage.side_effects)


def check_stages(values: Mapping[str, Any], stages: Iterable[Component]) -> None:
    """Raise ``ParameterError`` if a section of ``stages`` is wrong; others are only known by
    name."""
    parameters.validate(values, stages, others=configurable_components())


def run_stages(folder: Path, values: dict[str, Any], stages: Iterable[Component]) -> None:
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
    run_checked(folder, values, stages)


def run_checked(folder: Path, values: Mapping[str, Any], stages: Iterable[Component]) -> None:
    """Run stages in order on the artifacts of ``folder``, with valid parameters."""
    workspace = Workspace((folder / ARTIFACTS).as_posix())
    stages = list(stages)
    for number, stage in enumerate(stages, start=1):
        title = f"[{number}/{len(stages)}] {stage.name}"
        job = stage_job(stage, values, workspace)
        if job.is_complete():
            click.secho(f"{title}: up to date", dim=True, err=True)
            continue
        click.secho(f"{title}: {stage.summary}", bold=True, err=True)
        start = time.monotonic()
        run_stage(job)
        click.secho(f"{title}: {time.monotonic() - start:.0f} s", dim=True, err=True)
