"""Equal tuning: one search for every system, several seeds of the chosen values, and paired differences."""

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bifocal.promotion.comparison import compare_trainings, sample_images

SCALED, INVERSE = ("margin", "temperature"), "sharpness"
"""Arguments of losses in units of the score, and one in units of its inverse."""
CLOSED_FORM = "CCA"
"""Has no steps and no loss to tune, and no seed."""
VALIDATION, REPORTED = "val", "test"
RESAMPLES = 2000


@dataclass(frozen=True)
class Trial:
    """Factors of the values of a recipe."""

    learning_rate: float = 1.0
    scale: float = 1.0
    batch_size: float = 1.0

    def __str__(self) -> str:
        return "-".join(f"{factor:g}" for factor in astuple(self))


@dataclass(frozen=True)
class Search:
    """Trials of each system, the recipe first, and the seeds of the chosen one."""

    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Training:
    """One training of a system: for ``VALIDATION`` to choose a trial, for ``REPORTED`` to measure the chosen one."""

    name: str
    trial: Trial
    split: str
    seed: int


@dataclass
class Tuned:
    """Validation measure of each finished trial of a system, the chosen trial, and reported measures by seed."""

    validation: dict[Trial, float] = field(default_factory=dict)
    chosen: Trial | None = None
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)


Measure = Callable[[Training, float], dict[str, Any] | None]
"""Returns the stored measures of a training; if there are none before the time given, trains and measures."""


def read_search(values: Mapping[str, Any]) -> Search:
    """Read a space, a seed and a number of trials; the trials are drawn from them."""
    random, space = np.random.default_rng(values["seed"]), values["space"]

    def factor(name: str) -> float:
        low, high = map(math.log, space[name])
        return round(math.exp(random.uniform(low, high)), 3)

    drawn = [
        Trial(factor("learning_rate"), factor("scale"), float(random.choice(space["batch_size"])))
        for _ in range(values["trials"] - 1)
    ]
    return Search((Trial(), *drawn), tuple(values["seeds"]))


def with_trial(values: Mapping[str, Any], trial: Trial) -> dict[str, Any]:
    """Return the parameters of all stages with the factors of a trial in each phase of the training."""
    changed = copy.deepcopy(dict(values))
    for phase in changed["train_embedding"]["phases"]:
        phase["learning_rate"] *= trial.learning_rate
        phase["batches"]["batch_size"] = max(2, round(phase["batches"]["batch_size"] * trial.batch_size))
        _scale(phase["loss"], trial.scale)
    return changed


def _scale(loss: Any, factor: float) -> None:
    for part in loss if isinstance(loss, list) else [loss]:
        for key in list(part) if isinstance(part, dict) else []:
            if key in SCALED:
                part[key] *= factor
            elif key == INVERSE:
                part[key] /= factor
            else:
                _scale(part[key], factor)


def tune(name: str, search: Search, measure: Measure, end: float) -> Tuned:
    """Try the trials of a system, and train the best one with every seed; no training starts after the time ``end``."""
    tuned = Tuned()
    for training in trials_of(name, search):
        if found := measure(training, end):
            tuned.validation[training.trial] = found["recall sum" if "recall sum" in found else "NDCG"]
    for training in seeds_of(name, search, tuned):
        tuned.chosen = training.trial
        if found := measure(training, end):
            tuned.seeds[training.seed] = found
    return tuned


def trials_of(name: str, search: Search) -> list[Training]:
    """Return the trainings that choose."""
    trials = search.trials[: 1 if name == CLOSED_FORM else None]
    return [Training(name, trial, VALIDATION, search.seeds[0]) for trial in trials]


def seeds_of(name: str, search: Search, tuned: Tuned) -> list[Training]:
    """Return the trainings of the chosen trial, once all trials are finished."""
    if len(tuned.validation) < len(trials_of(name, search)):
        return []
    return with_seeds(name, search, max(tuned.validation, key=lambda trial: tuned.validation[trial]))


def with_seeds(name: str, search: Search, trial: Trial) -> list[Training]:
    """Return the trainings of a system with the values of a trial and every seed."""
    return [Training(name, trial, REPORTED, seed) for seed in search.seeds[: 1 if name == CLOSED_FORM else None]]


def train_at_once(trainings: Iterable[Training], measure: Measure, jobs: int, end: float) -> None:
    """Store the measures of trainings with ``jobs`` processes of one thread each; none starts after the time ``end``.

    What trainings share must exist before: two of them must not make it.
    """
    context = get_context("spawn")
    missing = [training for training in trainings if measure(training, -math.inf) is None]
    # A process for each training: freed memory stays with a process, and 20 trainings would hold 11 GB.
    with ProcessPoolExecutor(jobs, context, torch.set_num_threads, (1,), max_tasks_per_child=1) as pool:
        for job in [pool.submit(measure, training, end) for training in missing]:
            job.result()


def difference(
    row: Mapping[int, Sequence[float]], first: Mapping[int, Sequence[float]]
) -> tuple[float, float, float] | None:
    """Return the mean difference of two systems' values per image, with a 95 % interval over images and seeds.

    See ``compare_trainings``; None if a system has no values per image.
    """
    if not row or not first:
        return None
    values = np.transpose([*row.values(), *first.values()])
    metric = sample_images(values, range(len(values)), RESAMPLES, seed=0)
    found = compare_trainings("recall sum", metric, len(row), seed=0)
    return found.gain, *found.interval


def stored(file: Path, key: Any, compute: Callable[[], dict[str, Any]] | None) -> dict[str, Any] | None:
    """Return the measures in a file of the same key, else compute and store them; None if there is no ``compute``."""
    if file.is_file() and (found := json.loads(file.read_text()))["key"] == key:
        return dict(found["measures"])
    if compute is None:
        return None
    measures = compute()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"key": key, "measures": measures}) + "\n")
    return measures
