"""Training of one model, or of several members with different seeds as one model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bifocal.models import concatenate_models
from bifocal.models.base import Model
from bifocal.progress import log_line
from bifocal.training.blending import choose_blend
from bifocal.training.distributed import World
from bifocal.training.fitting import FitOptions, TrainingPhase
from bifocal.training.initialization.base import Initialization, initialize
from bifocal.training.inputs import TrainingInputs
from bifocal.training.loop import Row
from bifocal.training.phases import TrainingResult, train_phases
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
    closed_form: Sequence[Initialization] = (),
    options: FitOptions = FitOptions(),  # noqa: B008 - immutable
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> TrainedMembers:
    """Initialize and train each member, and concatenate the vectors of all.

    Without phases, the initialization is the result, with epoch 0 as the best. ``closed_form`` has initializations of
    further members, which no phase trains; an optional one is left out unless it raises the recall sum of "val".
    """
    models: list[Model] = []
    results: list[TrainingResult] = []
    metrics: dict[str, float] = {}
    is_main = World.current().is_main

    def validate(model: Model) -> float:
        return Recall().prepare(inputs)(model)["recall_sum"]

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
                options=options,
                on_epoch=on_epoch,
            )
        results.append(result)
        metrics |= choose_blend(model, inputs) if is_main else {}
        models.append(model)
    for number, untrained in enumerate(closed_form):
        own_seed, folder = seed + MEMBER_SEED * (members + number), checkpoints / f"closed-form-{number}"
        model = new_model(own_seed)
        fitted = initialize(model, untrained, inputs, checkpoints=folder, seed=own_seed)
        if untrained.optional and is_main:
            without, together = (validate(concatenate_models(some)) for some in (models, [*models, model]))
            log_line(f"recall sum of val: {without:.1f}; with {type(untrained).__name__}: {together:.1f}")
            if together <= without:
                continue
        metrics |= fitted
        models.append(model)
    chosen_by = {"recall_sum", results[0].monitor} & results[0].best.keys()
    metrics |= {f"validation_{name}": fmean(result.best[name] for result in results) for name in chosen_by}
    joined = concatenate_models(models)
    if len(models) > 1 and is_main:
        # The validations of the members stay, as their mean.
        metrics = {name.replace("validation_", "validation_mean_"): value for name, value in metrics.items()}
        metrics["validation_recall_sum"] = validate(joined)
    history = [row for result in results for row in result.history]
    return TrainedMembers(joined, history, {"best_epoch": results[0].best["epoch"]} | metrics)
