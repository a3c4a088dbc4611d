"""Trainings of recipes with several seeds, which share the stages that are equal; finished ones are
not repeated."""

import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import click
import pandas as pd
from safetensors import safe_open

from bifocal.evaluation.rank_tables import RANKS
from bifocal.onnx.files import read_json
from bifocal.promotion.comparison_files import Training
from components.catalog import configurable_components, pipeline_components
from pipelines.app.run_folder import PARAMETERS
from pipelines.app.stages import SECONDS, run_stages
from pipelines.dvc import recipe_folder
from runtime import parameters
from runtime.spec import Component, flatten

TRAINING, LAST = "train_embedding", "evaluate"
LOG = "log.txt"


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

    def trainings(self) -> list[Training]:
        """Return seed, size, steps and minutes of each training."""
        return [_training(seed, run) for seed, run in self.runs.items()]


def _training(seed: int, run: Path) -> Training:
    embedding, seconds = run / "artifacts" / "embedding", run / SECONDS
    weights, history = embedding / "model.safetensors", embedding / "history.csv"
    parameters = steps = minutes = None
    if weights.is_file():
        with safe_open(weights, framework="np") as file:
            parameters = sum(prod(file.get_slice(name).get_shape()) for name in [*file.keys()])
    if history.is_file() and "steps" in (rows := pd.read_csv(history)):
        steps = int(rows["steps"].sum())
    if seconds.is_file() and TRAINING in (timed := read_json(seconds)):
        minutes = timed[TRAINING] / 60
    return Training(seed, parameters, steps, minutes)


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
    """Run the stages up to the evaluation in each run folder of a recipe, in turn over seeds, with
    one line of progress for each; ``log.txt`` of a folder has the rest.

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
    start = time.monotonic()
    for number, (system, seed, run) in enumerate(sorted(work, key=lambda entry: entry[1])):
        values = {**system.values, TRAINING: {**system.values[TRAINING], "seed": seed}}
        minutes = (time.monotonic() - start) / 60 * (len(work) / number - 1) if number else None
        left = "" if minutes is None else f", about {minutes:.0f} minutes left"
        title = f"training {number + 1} of {len(work)}: {system.name}, seed {seed}{left}"
        click.echo(f"{title}; log: {(run / LOG).as_posix()}", err=True)
        run.mkdir(parents=True, exist_ok=True)
        with (run / LOG).open("a", encoding="utf-8") as log, redirect_stderr(log):
            run_stages(run, values, _stages(values), sources)
        sources.append(run)


def _stages(values: Mapping[str, Any]) -> list[Component]:
    """Return the evaluation, and the stages that it needs, in order."""
    needed, stages = set[str](), list[Component]()
    for stage in reversed(pipeline_components(values["pipeline"], values)):
        if stage.name == LAST or needed & {*stage.outputs}:
            needed |= {*stage.inputs}
            stages.insert(0, stage)
    return stages
