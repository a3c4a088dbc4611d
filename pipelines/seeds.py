"""Trainings of recipes with several seeds, which share the stages that are equal; finished ones are
not repeated."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import click
import pandas as pd

from bifocal.evaluation.rank_tables import RANKS
from components.catalog import configurable_components, pipeline_components
from pipelines.app.run_folder import PARAMETERS
from pipelines.app.stages import SECONDS, run_stages
from pipelines.dvc import recipe_folder
from runtime import parameters
from runtime.spec import Component, flatten

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
        click.secho(f"{system.name}, seed {seed}", bold=True, err=True)
        run_stages(run, values, _stages(values["pipeline"]), sources)
        sources.append(run)


def _stages(pipeline: str) -> list[Component]:
    """Return the evaluation, and the stages that it needs, in order."""
    needed, stages = set[str](), list[Component]()
    for stage in reversed(pipeline_components(pipeline)):
        if stage.name == LAST or needed & {*stage.outputs}:
            needed |= {*stage.inputs}
            stages.insert(0, stage)
    return stages
