"""Trainings of recipes with several seeds, which share the stages that are equal; finished ones are
not repeated."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import click
import pandas as pd

from bifocal.durable import write_text
from bifocal.evaluation.rank_tables import RANKS
from components.catalog import configurable_components, pipeline_components
from pipelines.dvc import recipe_folder
from pipelines.local.engine import SUPERVISOR
from runtime import parameters
from runtime.job import Workspace, stage_job
from runtime.spec import Component, flatten
from runtime.stage import Job

PARAMETERS, SECONDS = "params.yaml", "seconds.json"
TRAINING, LAST = "train_embedding", "evaluate"


@dataclass(frozen=True)
class System:
    """A recipe, or a finished run: its parameters, and a run folder for each seed of the
    training."""

    name: str
    values: Mapping[str, Any]
    runs: Mapping[int, Path]
    recipe_run: Path | None = None  # where 'make repro' trains the recipe; None of a finished run

    def ranks(self) -> list[pd.DataFrame]:
        """Return the ranks of each run."""
        return [
            pd.read_parquet(run / "artifacts" / "metrics" / RANKS) for run in self.runs.values()
        ]

    def minutes(self) -> float | None:
        """Return the mean minutes of a training here; None if no training was timed."""
        files = [run / SECONDS for run in self.runs.values() if (run / SECONDS).is_file()]
        seconds = [json.loads(file.read_text()).get(TRAINING) for file in files]
        timed = [value for value in seconds if value is not None]
        return mean(timed) / 60 if timed else None


def read_system(path: Path, seeds: int) -> System:
    """Read a recipe, which gets ``seeds`` trainings, or the folder of a run, or of the runs of a
    recipe."""
    if not path.is_dir():
        values, folder = parameters.load(Path(PARAMETERS), [path]), recipe_folder(path)
        parameters.validate(values, configurable_components().values())
        if LAST not in [stage.name for stage in pipeline_components(values["pipeline"])]:
            raise ValueError(
                f"{path} has the pipeline {values['pipeline']}, which ranks no captions and images"
            )
        numbers = range(values["seed"], values["seed"] + seeds)
        return System(
            path.stem, values, {seed: folder / f"seed-{seed}" for seed in numbers}, folder
        )
    found = [file.parents[2] for file in sorted(path.glob(f"seed-*/artifacts/metrics/{RANKS}"))]
    folders = found or [path] * (path / "artifacts" / "metrics" / RANKS).is_file()
    if not folders:
        raise FileNotFoundError(
            f"{path} has no artifacts/metrics/{RANKS}: train the run first, or name its recipe"
        )
    values = parameters.load(folders[0] / PARAMETERS)
    return System(path.resolve().name, values, dict(enumerate(folders, start=1)))


def differing(systems: Sequence[System]) -> list[tuple[str, ...]]:
    """Return each parameter that differs between systems, with its value in each."""
    flat = [flatten(system.values) for system in systems]
    names = sorted({name for values in flat for name in values} - {f"{TRAINING}.seed"})
    rows = [(name, *(str(values.get(name, "-")) for values in flat)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def train_missing(systems: Sequence[System]) -> None:
    """Run the stages up to the evaluation in each run folder of a recipe, in turn over seeds.

    Only the training has the seed of its run: data, features, texts and sorter are those of the
    recipe. A stage that a run before it, or 'make repro', has run with equal parameters, inputs and
    code is a link to it.
    """
    sources = [system.recipe_run for system in systems if system.recipe_run]
    if len({*sources}) < len(sources):
        raise ValueError(f"two recipes have one run folder, {sources[-1]}: rename one of them")
    work = [
        (system, *run) for system in systems if system.recipe_run for run in system.runs.items()
    ]
    for system, seed, run in sorted(work, key=lambda entry: entry[1]):
        values = {**system.values, TRAINING: {**system.values[TRAINING], "seed": seed}}
        run.mkdir(parents=True, exist_ok=True)
        write_text(run / PARAMETERS, parameters.dump_yaml(values))
        for stage in _stages(values["pipeline"]):
            job = stage_job(stage, values, Workspace((run / "artifacts").as_posix()))
            if not job.is_complete() and not _linked(job, run, sources):
                click.secho(f"{system.name}, seed {seed}: {stage.name}", bold=True, err=True)
                _run(stage, run)
        sources.append(run)


def _stages(pipeline: str) -> list[Component]:
    """Return the evaluation, and the stages that it needs, in order."""
    needed, stages = set[str](), list[Component]()
    for stage in reversed(pipeline_components(pipeline)):
        if stage.name == LAST or needed & {*stage.outputs}:
            needed |= {*stage.inputs}
            stages.insert(0, stage)
    return stages


def _linked(job: Job, run: Path, sources: Sequence[Path]) -> bool:
    """Link the outputs of a job to the same outputs of another run; return whether there are
    any."""
    for path in job.outputs.values():  # a link of former parameters, or its target is gone
        if path.is_symlink():
            path.unlink()
    for source in sources:
        others = {name: source / "artifacts" / name for name in job.outputs}
        if replace(job, outputs=others).is_complete():
            for name, path in job.outputs.items():
                shutil.rmtree(path, ignore_errors=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(os.path.relpath(others[name].resolve(), path.parent.resolve()))
            return True
    return False


def _run(stage: Component, run: Path) -> None:
    """Run a stage in a process of its own, which ends with this one; add its seconds to the file of
    the run."""
    options = ["--params", str(run / PARAMETERS), "--artifacts", (run / "artifacts").as_posix()]
    command = [*SUPERVISOR, sys.executable, "-m", "components", stage.name, *options]
    start, file = time.monotonic(), run / SECONDS
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
            code = process.wait()
    finally:
        seconds = json.loads(file.read_text()) if file.is_file() else {}
        seconds[stage.name] = seconds.get(stage.name, 0.0) + time.monotonic() - start
        write_text(file, json.dumps(seconds) + "\n")
    if code:
        raise click.ClickException(
            f"{stage.name} of {run} failed; finished stages are kept: repeat the command to go on"
        )
