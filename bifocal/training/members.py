"""Training of one model or of several members as one, the weight of residual heads, and the hubness
bank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

from bifocal.draws import drawn, drawn_rows
from bifocal.hubness.bank import HubnessBank
from bifocal.layers import ResidualMap
from bifocal.metrics import recall_sum_gain
from bifocal.models import concatenate_models
from bifocal.models.base import Model
from bifocal.models.batch import BATCH, dual_encoder, embed_images, embed_texts, is_dual_encoder
from bifocal.progress import log_line
from bifocal.training.distributed import World
from bifocal.training.fitting import FitOptions, TrainingPhase, TrainingResult, train_phases
from bifocal.training.initialization.base import Initialization, initialize
from bifocal.training.inputs import TrainingInputs
from bifocal.training.loop import Row
from bifocal.training.precision import embedding_cast
from bifocal.training.validators import KS, Recall, model_ranks, recall_metrics

MEMBER_SEED = 1009
"""Difference of the seeds of two members, so that runs with neighboring seeds share no member."""
BLENDS = tuple(step / 10 for step in range(11))
"""Candidates of the weight of residual heads; 0 gives the model without its heads."""
BANK_SIZE = 4096
"""Captions, and images, of a bank: at d = 1024 the file has 16 MB."""


@dataclass(frozen=True)
class TrainedMembers:
    """The joined model, the history of all members with epochs that count on, and the metrics of
    the best epochs."""

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
    options: FitOptions = FitOptions(),
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> TrainedMembers:
    """Initialize and train each member, and concatenate the vectors of all.

    Without phases, the initialization is the result, with epoch 0 as the best. ``closed_form`` has
    initializations of further members, which no phase trains; an optional one is left out unless it
    raises the recall sum of "val".
    """
    models: list[Model] = []
    results: list[TrainingResult] = []
    metrics: dict[str, float] = {}
    is_main = World.current().is_main

    def validate(model: Model) -> float:
        return Recall().prepare(inputs)(model)["recall_sum"]

    for member in range(members):
        own_seed, folder = (
            seed + MEMBER_SEED * member,
            checkpoints / (f"member-{member}" if member else ""),
        )
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
        metrics |= choose_blend(model, inputs, own_seed) if is_main else {}
        models.append(model)
    for number, untrained in enumerate(closed_form):
        own_seed, folder = (
            seed + MEMBER_SEED * (members + number),
            checkpoints / f"closed-form-{number}",
        )
        model = new_model(own_seed)
        fitted = initialize(model, untrained, inputs, checkpoints=folder, seed=own_seed)
        if untrained.optional and is_main:
            without, together = (
                validate(concatenate_models(some)) for some in (models, [*models, model])
            )
            log_line(
                f"recall sum of val: {without:.1f}; with {type(untrained).__name__}: {together:.1f}"
            )
            if together <= without:
                continue
        metrics |= fitted
        models.append(model)
    chosen_by = {"recall_sum", results[0].monitor} & results[0].best.keys()
    metrics |= {
        f"validation_{name}": fmean(result.best[name] for result in results) for name in chosen_by
    }
    joined = concatenate_models(models)
    if len(models) > 1 and is_main:
        # The validations of the members stay, as their mean.
        metrics = {
            name.replace("validation_", "validation_mean_"): value
            for name, value in metrics.items()
        }
        metrics["validation_recall_sum"] = validate(joined)
    history = [row for result in results for row in result.history]
    return TrainedMembers(joined, history, {"best_epoch": results[0].best["epoch"]} | metrics)


def choose_blend(model: nn.Module, inputs: TrainingInputs, seed: int = 0) -> dict[str, float]:
    """Set the weight of all residual heads to the candidate of the highest recall sum on "val", or
    to 0 without a gain.

    There is a gain if the 95 % interval of the difference to weight 0, over resampled images, lies
    above 0. Return the weight, the recall sums of the best candidate and of weight 0, and the
    interval.
    """
    if not any(isinstance(module, ResidualMap) for module in model.modules()):
        return {}
    pairs, sums, found = inputs.captions("val"), dict[float, float](), {}
    for blend in BLENDS:
        set_blend(model, blend)
        ranks = model_ranks(model, pairs, inputs.precision)
        sums[blend], found[blend] = (
            recall_metrics(ranks)["recall_sum"],
            [part.expected().cpu() for part in ranks],
        )
    best = max(sums, key=lambda blend: sums[blend])
    low, high = recall_sum_gain(found[best], found[0.0], pairs.image_of_caption, KS, seed=seed)
    chosen = best if low > 0 else 0.0
    set_blend(model, chosen)
    sums_of = {"blended_recall_sum": sums[best], "zero_shot_recall_sum": sums[0.0]}
    return {"blend": chosen, **sums_of, "blend_gain_low": low, "blend_gain_high": high}


def set_blend(model: nn.Module, blend: float) -> None:
    for module in model.modules():
        if isinstance(module, ResidualMap):
            module.blend.fill_(blend)


def training_bank(
    model: Any, inputs: TrainingInputs, correction: object, seed: int
) -> HubnessBank | None:
    """Return at most 4,096 random captions and images of "train", if there are captions and single
    image vectors."""
    if correction is None or not is_dual_encoder(model):
        return None
    pairs, encoder = inputs.captions("train"), dual_encoder(model)
    if not len(pairs):
        return None
    ids, table = pairs.image_ids, inputs.dataset.split("train").captions
    captions = torch.tensor(drawn_rows(table["image_id"] + " " + table["text"], BANK_SIZE, seed))
    rows = torch.from_numpy(inputs.features.rows(drawn(ids, BANK_SIZE, seed)))
    with embedding_cast(model, inputs.precision):
        image_vectors = embed_images(
            encoder, (inputs.features.gather(some) for some in rows.split(BATCH))
        )
        caption_vectors = embed_texts(
            encoder, (pairs.caption_text(some) for some in captions.split(BATCH))
        )
    return HubnessBank.build(caption_vectors.numpy(), image_vectors.numpy(), correction)
