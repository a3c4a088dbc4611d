"""An exponential moving average of the weights."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def average_weights(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of ``model``, in ``.module``, that ``update_parameters(model)`` moves after every step.

    w' <- d w' + (1 - d) w with d = min(decay, (1 + t) / (10 + t)) at step t: the random weights of the start are
    forgotten whatever the decay. Buffers (statistics of batch normalisation) are copied, not averaged.

    Args:
        decay: in [0, 1); the average reaches back over about 1 / (1 - decay) steps.
    """

    def move(averages: Sequence[Tensor], weights: Sequence[Tensor], steps: Tensor | int) -> None:
        step = int(steps)
        torch._foreach_lerp_(list(averages), list(weights), 1 - min(decay, (1 + step) / (10 + step)))

    if not 0 <= decay < 1:
        raise ValueError(f"average is {decay}, expected a decay from 0 to below 1")
    return AveragedModel(model, multi_avg_fn=move)
