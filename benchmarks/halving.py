"""Successive halving with equal budgets in steps: hopeless trials of a search stop early."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import optuna
from optuna.pruners import SuccessiveHalvingPruner
from optuna.trial import TrialState
from torch import Tensor, nn

from bifocal.training.batches.base import Batches, PreparedBatches, Sampler
from bifocal.training.inputs import TrainingInputs

optuna.logging.set_verbosity(optuna.logging.WARNING)

IsHopeless = Callable[[float], bool]
"""Takes the validation measure of the next round, and says whether the trial stops."""


@dataclass(frozen=True)
class Budget:
    """Steps of every training, in rounds of equal length that end with a validation.

    After round 1, ``reduction``, ``reduction``^2, ..., a trial goes on if it is among the best
    1 / ``reduction`` of the trials that came so far.
    """

    steps: int
    rounds: int
    reduction: int

    @property
    def steps_per_round(self) -> int:
        """Steps between two validations."""
        return self.steps // self.rounds

    def __post_init__(self) -> None:
        if self.steps % self.rounds:
            raise ValueError(f"{self.steps} steps are not a multiple of {self.rounds} rounds")


class Halving:
    """Asynchronous successive halving of trials that come one after another.

    Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, by optuna. Equal
    measures in equal order give equal decisions, so a search that reads stored measures goes on
    where it was killed.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        pruner = SuccessiveHalvingPruner(min_resource=1, reduction_factor=budget.reduction)
        self.study = optuna.create_study(direction="maximize", pruner=pruner)

    def run(self, train: Callable[[IsHopeless], Sequence[float]]) -> list[float]:
        """Return the measures of a trial by round; they end where ``train`` was told to stop."""
        trial = self.study.ask()
        reported = 0

        def is_hopeless(measure: float) -> bool:
            nonlocal reported
            reported += 1
            trial.report(measure, reported)
            return reported < self.budget.rounds and trial.should_prune()

        measures = list(train(is_hopeless))
        self.study.tell(trial, max(measures), TrialState.COMPLETE)
        return measures


def expected_rounds(trials: int, budget: Budget, draws: int = 50) -> float:
    """Return the mean number of rounds of a search, if the first round orders all trials as the
    last one would."""
    random, total = np.random.default_rng(0), 0
    for _ in range(draws):
        search = Halving(budget)
        for quality in random.random(trials):
            total += len(search.run(partial(_constant, float(quality), budget.rounds)))
    return total / draws


def _constant(measure: float, rounds: int, is_hopeless: IsHopeless) -> list[float]:
    measures = [measure]
    while not is_hopeless(measure) and len(measures) < rounds:
        measures.append(measure)
    return measures


@dataclass(frozen=True)
class Rounds(Batches):
    """Batches of another sampler, in rounds of ``steps`` batches: one epoch of it may end in the
    middle of a round."""

    batches: Batches
    steps: int

    def prepare(
        self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int
    ) -> PreparedBatches:
        """Return the batches of the other sampler; its next epoch begins when its last batch is
        used."""
        inner = self.batches.prepare(inputs, model=model, loss=loss, seed=seed)
        return PreparedBatches(inner.source, in_rounds(inner.sampler, self.steps), inner.begin)


def in_rounds(sampler: Sampler, steps: int) -> Sampler:
    """Return a sampler of rounds of ``steps`` batches; rounds must be asked for in order."""
    stream = _chain(sampler)
    return lambda epoch: [next(stream) for _ in range(steps)]


def _chain(sampler: Sampler) -> Iterator[Tensor]:
    epoch = 0
    while True:
        yield from sampler(epoch)
        epoch += 1


def last_is_best(measures: Sequence[float]) -> bool:
    """Whether the last round of a training is its best: a longer one may find more."""
    return len(measures) > 1 and measures.index(max(measures)) == len(measures) - 1
