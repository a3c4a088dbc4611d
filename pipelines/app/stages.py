"""Run stages one after another in this process; a stage whose outputs are up to date is skipped."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from components.catalog import configurable_components, pipeline_components
from pipelines.app.run_folder import ARTIFACTS
from runtime import parameters
from runtime.job import Workspace, stage_job
from runtime.spec import Component
from runtime.stage import run_stage


def stages_of_run() -> tuple[Component, ...]:
    """Return the stages that write the artifacts of a run; registration is none of them."""
    return tuple(stage for stage in pipeline_components() if not stage.side_effects)


def run_stages(folder: Path, values: Mapping[str, Any], stages: Iterable[Component]) -> None:
    """Run ``stages`` in order on the artifacts of ``folder``, with all parameters in ``values``.

    A killed run goes on where it was: complete stages are skipped, and an incomplete one resumes from its checkpoint.
    """
    parameters.validate(values, configurable_components().values())
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
