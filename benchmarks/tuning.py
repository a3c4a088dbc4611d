"""Equal tuning: one search for every system, several seeds of the chosen values, and paired
differences."""

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
"""Has no steps and no seed: ridge and power are searched."""
VALIDATION, REPORTED = "val", "test"
RESAMPLES = 2000
EDGE = 0.1
"""A value in the outer tenth of a space, on a log scale, is at its edge."""
WIDER = 4
"""The wider space has one trial for so many of the first."""

Space = Mapping[str, tuple[float, float]]
"""Lowest and highest factor by its name."""


@dataclass(frozen=True)
class Trial:
    """Factors of the values of a recipe; the last two are of CCA."""

    learning_rate: float = 1.0
    scale: float = 1.0
    batch_size: float = 1.0
    regularization: float = 1.0
    power: float = 1.0

    def __str__(self) -> str:
        return "-".join(f"{factor:g}" for factor in astuple(self))


@dataclass(frozen=True)
class Search:
    """Number of trials of every system, the recipe first, their spaces, and the seeds of the chosen
    trial."""

    trials: int
    seed: int
    seeds: tuple[int, ...]
    space: Space
    closed_form: Space

    def space_of(self, name: str) -> Space:
        """Return the space of a system."""
        return self.closed_form if name == CLOSED_FORM else self.space

    def first(self, name: str) -> list[Trial]:
        """Return the recipe and the trials that are drawn from the space."""
        return [Trial(), *_draw(self.space_of(name), self.trials - 1, self.seed)]

    def wider(self, name: str, best: Trial) -> Space:
        """Return the space around the edges where the best of the first trials is; without edges,
        the same space."""
        space = dict(self.space_of(name))
        for factor, end in edges_of(best, space, space).items():
            width = math.sqrt(space[factor][1] / space[factor][0])
            space[factor] = end / width, end * width
        return space

    def second(self, name: str, best: Trial) -> list[Trial]:
        """Return the trials of the wider space; none if the best of the first trials is at no
        edge."""
        wider = self.wider(name, best)
        return (
            _draw(wider, -(-self.trials // WIDER), self.seed + 1)
            if wider != self.space_of(name)
            else []
        )

    def left_edges(self, name: str, best: Trial, chosen: Trial) -> list[str]:
        """Return the factors of the chosen trial that are at an edge of both spaces; ``best`` is of
        the first one."""
        space, wider = self.space_of(name), self.wider(name, best)
        ends = {
            key: (min(space[key][0], wider[key][0]), max(space[key][1], wider[key][1]))
            for key in space
        }
        return list(edges_of(chosen, space, ends))


def _draw(space: Space, count: int, seed: int) -> list[Trial]:
    random = np.random.default_rng(seed)

    def factor(low: float, high: float) -> float:
        return round(math.exp(random.uniform(math.log(low), math.log(high))), 3)

    return [Trial(**{name: factor(*ends) for name, ends in space.items()}) for _ in range(count)]


def edges_of(trial: Trial, space: Space, ends: Space) -> dict[str, float]:
    """Return the end of each factor of a trial that is near an end: by less than ``EDGE`` of the
    width of ``space``."""
    found = {}
    for factor, (low, high) in ends.items():
        near = (space[factor][1] / space[factor][0]) ** EDGE
        value = getattr(trial, factor)
        if value < low * near or value > high / near:
            found[factor] = low if value < low * near else high
    return found


@dataclass(frozen=True)
class Training:
    """One training of a system: for ``VALIDATION`` to choose a trial, for ``REPORTED`` to measure
    the chosen one."""

    name: str
    trial: Trial
    split: str
    seed: int


@dataclass
class Tuned:
    """Validation measure of each finished trial of a system, the chosen trial, and reported
    measures by seed."""

    validation: dict[Trial, float] = field(default_factory=dict)
    chosen: Trial | None = None
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)
    edges: list[str] = field(default_factory=list)
    """Factors of the chosen trial that are at an edge of the wider space."""
    tried: int = 0
    """Trials of a search by halving, with those that stopped early."""
    unfinished: int = 0
    """Seeds whose last round is their best."""


Measure = Callable[[Training, float], dict[str, Any] | None]
"""Returns the stored measures of a training; if there are none before the time given, trains and
measures."""


def read_search(values: Mapping[str, Any]) -> Search:
    """Read spaces, a seed and a number of trials; the trials are drawn from them."""
    space, closed_form = (
        {key: tuple(ends) for key, ends in values[name].items()}
        for name in ("space", "closed_form")
    )
    return Search(values["trials"], values["seed"], tuple(values["seeds"]), space, closed_form)


def with_trial(values: Mapping[str, Any], trial: Trial) -> dict[str, Any]:
    """Return the parameters of all stages with the factors of a trial in the initialization and in
    each phase."""
    changed = copy.deepcopy(dict(values))
    training = changed["train_embedding"]
    for phase in training["phases"]:
        phase["learning_rate"] *= trial.learning_rate
        phase["batches"]["batch_size"] = max(
            2, round(phase["batches"]["batch_size"] * trial.batch_size)
        )
        _scale(phase["loss"], trial.scale)
    for factor in ("regularization", "power"):
        if getattr(trial, factor) != 1.0:
            training["initialization"][factor] *= getattr(trial, factor)
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
    """Try the trials of a system, and train the best one with every seed; no training starts after
    the time ``end``."""
    tuned = Tuned()
    while missing := [
        one for one in trials_of(name, search, tuned) if one.trial not in tuned.validation
    ]:
        for training in missing:
            if found := measure(training, end):
                tuned.validation[training.trial] = found[
                    "recall sum" if "recall sum" in found else "NDCG"
                ]
        if any(training.trial not in tuned.validation for training in missing):
            break
    for training in seeds_of(name, search, tuned):
        tuned.chosen = training.trial
        tuned.edges = search.left_edges(name, best_of(search.first(name), tuned), training.trial)
        if found := measure(training, end):
            tuned.seeds[training.seed] = found
    return tuned


def trials_of(name: str, search: Search, tuned: Tuned) -> list[Training]:
    """Return the trainings that choose; after the first trials, also those of the wider space."""
    trials = search.first(name)
    if all(trial in tuned.validation for trial in trials):
        trials += search.second(name, best_of(trials, tuned))
    return [Training(name, trial, VALIDATION, search.seeds[0]) for trial in trials]


def seeds_of(name: str, search: Search, tuned: Tuned) -> list[Training]:
    """Return the trainings of the chosen trial, once all trials are finished."""
    if any(one.trial not in tuned.validation for one in trials_of(name, search, tuned)):
        return []
    return with_seeds(name, search, best_of(tuned.validation, tuned))


def best_of(trials: Iterable[Trial], tuned: Tuned) -> Trial:
    """Return the trial with the best validation measure, the first one of equal trials."""
    return max(trials, key=lambda trial: tuned.validation[trial])


def with_seeds(name: str, search: Search, trial: Trial) -> list[Training]:
    """Return the trainings of a system with the values of a trial and every seed."""
    return [
        Training(name, trial, REPORTED, seed)
        for seed in search.seeds[: 1 if name == CLOSED_FORM else None]
    ]


def train_at_once(trainings: Iterable[Training], measure: Measure, jobs: int, end: float) -> None:
    """Store the measures of trainings with ``jobs`` processes of one thread each; none starts after
    the time ``end``.

    What trainings share must exist before: two of them must not make it.
    """
    context = get_context("spawn")
    missing = [training for training in trainings if measure(training, -math.inf) is None]
    # A process for each training: freed memory stays with a process, and 20 trainings would hold 11
    # GB.
    with ProcessPoolExecutor(
        jobs, context, torch.set_num_threads, (1,), max_tasks_per_child=1
    ) as pool:
        for job in [pool.submit(measure, training, end) for training in missing]:
            job.result()


def tune_at_once(
    names: Sequence[str], search: Search, measure: Measure, jobs: int, end: float
) -> None:
    """Store the measures of all trials of systems, then of their wider spaces, then of the chosen
    trials."""
    for wanted in (trials_of, trials_of, seeds_of):
        tried = {name: tune(name, search, measure, -math.inf) for name in names}
        train_at_once(
            (one for name in names for one in wanted(name, search, tried[name])), measure, jobs, end
        )


def difference(
    row: Mapping[int, Sequence[float]], first: Mapping[int, Sequence[float]]
) -> tuple[float, float, float] | None:
    """Return the mean difference of two systems' values per image, with a 95 % interval over images
    and seeds.

    See ``compare_trainings``; None if a system has no values per image.
    """
    if not row or not first:
        return None
    values = np.transpose([*row.values(), *first.values()])
    metric = sample_images(values, range(len(values)), RESAMPLES, seed=0)
    found = compare_trainings("recall sum", metric, len(row), seed=0)
    return found.gain, *found.interval


def stored(
    file: Path, key: Any, compute: Callable[[], dict[str, Any]] | None
) -> dict[str, Any] | None:
    """Return the measures in a file of the same key, else compute and store them; None if there is
    no ``compute``."""
    if file.is_file() and (found := json.loads(file.read_text()))["key"] == key:
        return dict(found["measures"])
    if compute is None:
        return None
    measures = compute()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"key": key, "measures": measures}) + "\n")
    return measures
