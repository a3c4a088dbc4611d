"""Equal tuning: one search for every system, several seeds of the chosen values, and paired differences."""

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bifocal.metrics.bootstrap import mean_interval

SCALED, INVERSE = ("margin", "temperature"), "sharpness"
"""Arguments of losses in units of the score, and one in units of its inverse."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Trial:
    """Factors of the values of a recipe."""

    learning_rate: float = 1.0
    scale: float = 1.0
    batch_size: float = 1.0


@dataclass(frozen=True)
class Search:
    """Trials of each system, the recipe first, the seeds of the chosen one, and the differences from the papers."""

    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]
    differs: Mapping[str, str]


def read_search(file: Path) -> Search:
    """Read a space, a seed and a number of trials; the trials are drawn from them."""
    values = yaml.safe_load(file.read_text())
    random, space = np.random.default_rng(values["seed"]), values["space"]

    def factor(name: str) -> float:
        low, high = map(math.log, space[name])
        return round(math.exp(random.uniform(low, high)), 3)

    drawn = [
        Trial(factor("learning_rate"), factor("scale"), float(random.choice(space["batch_size"])))
        for _ in range(values["trials"] - 1)
    ]
    return Search((Trial(), *drawn), tuple(values["seeds"]), values["differs"])


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


def difference(
    row: Mapping[int, Sequence[float]], first: Mapping[int, Sequence[float]]
) -> tuple[float, float, float] | None:
    """Return the mean difference of two systems' values per image, over their common seeds, with a 95 % interval.

    The bootstrap draws images; None without a common seed.
    """
    seeds = sorted(row.keys() & first.keys())
    if not seeds:
        return None
    values = np.mean([np.subtract(row[seed], first[seed]) for seed in seeds], axis=0)
    low, high = mean_interval(values, [str(image) for image in range(len(values))], resamples=RESAMPLES, seed=0)
    return float(values.mean()), low, high


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
