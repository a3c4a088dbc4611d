"""Exponential moving average (EMA) of the weights."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def average_weights(model: nn.Module, decay: float) -> AveragedModel:
    """Return a copy of ``model``, in ``.module``; call ``update_parameters(model)`` on it after every step.

    w' <- d w' + (1 - d) w with d = min(decay, (1 + t) / (10 + t)) at step t: the random initial weights are forgotten
    whatever the decay, in [0, 1). Buffers (statistics of batch norm) are copied, not averaged.
    """

    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], steps: Tensor | int) -> None:
        step = int(steps)
        torch._foreach_lerp_(list(averages), list(weights), 1 - min(decay, (1 + step) / (10 + step)))

    if not 0 <= decay < 1:
        raise ValueError(f"ema_decay is {decay}: expected a number from 0 to below 1")
    return AveragedModel(model, multi_avg_fn=update)
