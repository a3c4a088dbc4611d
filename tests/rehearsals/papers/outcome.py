"""Outcome of a rehearsal: does the recipe learn, and what does its table row say?"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tests.rehearsals.papers.gradients import BRANCHES
from tests.rehearsals.papers.measures import Measure, measure
from tests.rehearsals.papers.stages import GRADIENTS
from tests.rehearsals.papers.table import Rehearsal

MAX_GRADIENT_RATIO = 100.0


@dataclass
class Outcome:
    """What a rehearsed recipe gave.

    Attributes:
        measures: the headline and the learned measures, by name.
        bars: value above which the interval of each learned measure must lie.
        losses: mean loss of the first and of the last epoch of each phase.
        gradient_ratio: largest gradient norm of a branch relative to the smallest; None with one
            branch.
        minutes: time of the stages, including stages that other recipes share.
        problems: why it failed; empty if it learned.
    """

    recipe: str
    headline: str
    measures: dict[str, Measure] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)
    losses: list[tuple[float, float]] = field(default_factory=list)
    gradient_ratio: float | None = None
    minutes: float = 0.0
    problems: list[str] = field(default_factory=list)


def check(
    recipe: str, rehearsal: Rehearsal, folders: Mapping[str, Path], seconds: float
) -> Outcome:
    """Return the outcome of a recipe whose stages have run."""
    outcome = Outcome(recipe, rehearsal.headline, minutes=seconds / 60)
    for name in dict.fromkeys([rehearsal.headline, *rehearsal.learned]):
        outcome.measures[name] = measure(name, folders)
    # A bar of the table never lowers the general one.
    outcome.bars = {
        name: max(rehearsal.bars.get(name, 0), outcome.measures[name].bar)
        for name in rehearsal.learned
    }
    outcome.problems += not_learned(outcome.measures, outcome.bars)
    trained = folders.get("ranking_metrics") or folders.get("embedding")
    history = trained / "history.csv" if trained is not None else None
    if history is not None and history.is_file():
        outcome.losses = phase_losses(pd.read_csv(history))
        outcome.problems += [] if rehearsal.mines else risen(outcome.losses)
    if "embedding" in folders:
        norms = json.loads((folders["embedding"].parent / GRADIENTS).read_text())
        outcome.problems += _branch_problems(norms, rehearsal)
        if len(norms) == len(BRANCHES):
            outcome.gradient_ratio = max(norms.values()) / min(norms.values())
    return outcome


def phase_losses(history: pd.DataFrame) -> list[tuple[float, float]]:
    """Return the first and the last loss of every phase that has several epochs."""
    history = history.dropna(subset=["loss"])  # the row of an initialization has no loss
    keys = [name for name in ("loss_name", "phase") if name in history]
    groups = [rows for _, rows in history.groupby(keys)] if keys else [history]
    return [
        (float(rows["loss"].iloc[0]), float(rows["loss"].iloc[-1]))
        for rows in groups
        if len(rows) > 1
    ]


def risen(losses: Iterable[tuple[float, float]]) -> Iterator[str]:
    """Yield the phases whose loss does not fall."""
    for number, (first, last) in enumerate(losses):
        if not last < first:
            yield f"the loss of phase {number} goes from {first:.4g} to {last:.4g}"


def not_learned(measures: Mapping[str, Measure], bars: Mapping[str, float]) -> Iterator[str]:
    """Yield the measures whose interval does not lie above its bar."""
    for name, bar in bars.items():
        if not measures[name].low > bar:
            value, low, chance = measures[name]
            yield (
                f"{name} is {value:.1f}, from {low:.1f}: not above {bar:.1f}; chance is "
                f"{chance:.1f}"
            )


def _branch_problems(norms: Mapping[str, float], rehearsal: Rehearsal) -> Iterator[str]:
    if set(norms) != set(rehearsal.branches):
        yield (
            f"branches with gradients: {', '.join(sorted(norms)) or 'none'}; expected "
            f"{', '.join(rehearsal.branches)}"
        )
    if norms and max(norms.values()) > MAX_GRADIENT_RATIO * min(norms.values()):
        listed = ", ".join(f"{name} {norm:.3g}" for name, norm in norms.items())
        yield f"gradient norms differ by more than {MAX_GRADIENT_RATIO:.0f}: {listed}"
