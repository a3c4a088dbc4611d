"""Training of one model, or of several members with different seeds as one model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bifocal.models import concatenate_models
from bifocal.models.base import Model
from bifocal.training.blending import choose_blend
from bifocal.training.distributed import World
from bifocal.training.initialization.base import Initialization, initialize
from bifocal.training.inputs import TrainingInputs
from bifocal.training.loop import Row
from bifocal.training.phases import TrainingPhase, TrainingResult, train_phases
from bifocal.training.validators import Recall

MEMBER_SEED = 1009
"""Difference of the seeds of two members, so that runs with neighboring seeds share no member."""


@dataclass(frozen=True)
class TrainedMembers:
    """The joined model, the history of all members with epochs that count on, and the metrics of the best epochs."""

    model: Model
    history: list[Row]
    metrics: dict[str, float]


def train_members(
    new_model: Callable[[int], Model],
    new_phases: Callable[[], Sequence[TrainingPhase]],
    inputs: TrainingInputs,
    *,
    checkpoints: Path,
    members: int = 1,
    seed: int = 0,
    initialization: Initialization | None = None,
    closed_form: Initialization | None = None,
    on_epoch: Callable[[Row], None] = lambda row: None,
    **options: Any,
) -> TrainedMembers:
    """Initialize and train each member, and concatenate the vectors of all; ``options`` are arguments of ``fit``.

    Without phases, the initialization is the result, with epoch 0 as the best. ``closed_form`` is the initialization of
    one more member, which no phase trains.
    """
    models: list[Model] = []
    results: list[TrainingResult] = []
    metrics: dict[str, float] = {}
    is_main = World.current().is_main
    for member in range(members):
        own_seed, folder = seed + MEMBER_SEED * member, checkpoints / (f"member-{member}" if member else "")
        model = new_model(own_seed)
        if initialization is not None:
            metrics |= initialize(model, initialization, inputs, checkpoints=folder, seed=own_seed)
        phases, result = new_phases(), TrainingResult([], {"epoch": 0}, "")
        if phases:
            result = train_phases(
                model,
                phases,
                inputs,
                checkpoints=folder,
                seed=own_seed,
                initialized=initialization is not None,
                first_epoch=sum(len(trained.history) for trained in results),
                on_epoch=on_epoch,
                **options,
            )
        results.append(result)
        metrics |= choose_blend(model, inputs) if is_main else {}
        models.append(model)
    if closed_form is not None:
        own_seed = seed + MEMBER_SEED * members
        model = new_model(own_seed)
        metrics |= initialize(model, closed_form, inputs, checkpoints=checkpoints / "closed-form", seed=own_seed)
        models.append(model)
    chosen_by = {"recall_sum", results[0].monitor} & results[0].best.keys()
    metrics |= {f"validation_{name}": fmean(result.best[name] for result in results) for name in chosen_by}
    joined = concatenate_models(models)
    if len(models) > 1 and is_main:
        # The validations of the members stay, as their mean.
        metrics = {name.replace("validation_", "validation_mean_"): value for name, value in metrics.items()}
        metrics["validation_recall_sum"] = Recall().prepare(inputs)(joined)["recall_sum"]
    history = [row for result in results for row in result.history]
    return TrainedMembers(joined, history, {"best_epoch": results[0].best["epoch"]} | metrics)
