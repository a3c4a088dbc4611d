"""Memory and operations of a training step and of the predictions of a ranking head, from a simulation of its code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bifocal.planning.features import ExpectedFeatures
from bifocal.planning.memory import remembered
from bifocal.planning.simulation import Simulation, Work
from bifocal.planning.training import EMBEDDED, StepCost
from bifocal.ranking_heads.labeled import MetricName
from bifocal.ranking_heads.model import RankingModel
from bifocal.ranking_heads.serialization import build_ranking_model
from bifocal.ranking_heads.training import PREDICTION_BATCH_SIZE, backward_scores
from bifocal.registry import build
from bifocal.sorters import LSTMSorter
from bifocal.training.freezing import apply_freezing
from bifocal.training.gradients import Precision, autocast_for, batch_norms
from bifocal.training.optimizers import build_optimizer


@dataclass(frozen=True)
class RankingInputs:
    """What a ranking model is built from, and what it is trained on.

    Attributes:
        head: reference to a part of ``bifocal.ranking_heads``.
        backbone: reference to a part of ``bifocal.ranking_heads.backbones``; None for a head on stored features.
        features: of the corpus.
        labels: scores per image.
    """

    head: Any
    backbone: Any | None
    features: ExpectedFeatures
    labels: int

    def build(self, simulation: Simulation) -> RankingModel:
        """Return the model with weights of the simulation."""
        with torch.device("meta"):
            model = build_ranking_model(self.head, self.backbone, input_dim=self.features.model_dim, labels=self.labels)
        simulation.materialize(model)
        return model


@dataclass(frozen=True)
class PredictionCost:
    """Scores of images without gradients.

    Attributes:
        peak: bytes of the weights and of a batch of images in the network.
        weights: bytes of the weights alone.
        image: work for one image.
    """

    peak: int
    weights: int
    image: Work


@remembered
def simulate_ranking_step(
    inputs: RankingInputs,
    *,
    metric: MetricName,
    batch_size: int,
    loss: Any,
    sorter: Any | None,
    optimizer: Any,
    frozen_until: Mapping[str, int | None],
    epoch: int,
    precision: Precision,
    micro_batch_size: int | None = None,
) -> StepCost:
    """Run one training step on shapes alone; the arguments are those of ``fit_head``.

    Args:
        loss: reference to a part of ``bifocal.losses``.
        sorter: reference to a part of ``bifocal.sorters``; None for an LSTM of the length of the batch.
        epoch: epoch of the phase, which decides what is frozen.
    """
    simulation = Simulation()
    model = inputs.build(simulation)
    weights = simulation.live
    apply_freezing(model, frozen_until, epoch)
    with simulation:
        own_sorter = LSTMSorter(batch_size) if sorter is None else build("bifocal.sorters", sorter)
        criterion: nn.Module = build("bifocal.losses", loss, sorter=own_sorter)
        algorithm = build_optimizer(optimizer, [*model.parameters(), *criterion.parameters()], 0.1)
        for group in algorithm.param_groups:
            group["foreach"] = True  # the default on a GPU
        backward_scores(
            model,
            criterion,
            inputs.features.batch(batch_size),
            _targets(inputs.labels, batch_size, metric),
            micro_batch_size,
            autocast_for("cpu", precision),
            batch_norms(model),
        )
        algorithm.step()
        algorithm.zero_grad()
        moments = sum(
            value.numel() * value.element_size() for state in algorithm.state.values() for value in state.values()
        )
    return StepCost(simulation.peak, weights + moments, weights, simulation.work)


@remembered
def simulate_predictions(inputs: RankingInputs, images: int = PREDICTION_BATCH_SIZE) -> PredictionCost:
    """Score images on shapes alone, without gradients; the memory is extrapolated from smaller batches.

    Args:
        images: images of the largest split that is scored.
    """
    simulation = Simulation()
    model = inputs.build(simulation).eval()
    weights, peaks = simulation.live, []
    with simulation, torch.no_grad():
        for count in EMBEDDED:
            simulation.reset_peak()
            regions = inputs.features.batch(count)
            model(regions.features.float(), regions.mask)
            peaks.append(simulation.peak)
    per_image = (peaks[1] - peaks[0]) / (EMBEDDED[1] - EMBEDDED[0])
    peak = round(peaks[0] + per_image * (min(images, PREDICTION_BATCH_SIZE) - EMBEDDED[0]))
    return PredictionCost(peak, weights, simulation.work.times(1 / sum(EMBEDDED)))


def _targets(labels: int, batch_size: int, metric: MetricName) -> Tensor:
    """Return targets (C, B): numbers for Spearman's correlation, otherwise every second one is true."""
    numbers = torch.arange(batch_size).expand(labels, -1)
    return numbers.float() if metric == "spearman" else numbers % 2 == 0
