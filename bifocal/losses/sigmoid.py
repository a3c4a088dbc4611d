"""Sigmoid loss: binary cross-entropy of each pair."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from bifocal.scores import Scores, check_matches


class SigmoidLoss(nn.Module):
    """Binary cross-entropy of each (image, caption) pair of the batch.

    Zhai et al., "Sigmoid loss for language image pre-training", ICCV 2023, eq. (2) of section 3.2.
    The temperature and the bias are parameters of the loss: pass them to the optimizer.

    Args:
        temperature: initial t, per unit of score; its logarithm is learned.
        bias: initial b; a negative value compensates for the majority of negative pairs.

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the sum over all pairs divided by the
        number of matches.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> loss = SigmoidLoss(temperature=1.0, bias=0.0)
        >>> round(
        ...     loss(Scores(torch.zeros(2, 2)), torch.eye(2, dtype=torch.bool)).item(), 4
        ... )  # 2 log 2
        1.3863
    """

    def __init__(self, temperature: float = 10.0, bias: float = -10.0) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.bias = nn.Parameter(torch.tensor(float(bias)))

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        logits = scores.cross * self.log_temperature.exp() + self.bias
        return -logsigmoid(torch.where(matches, logits, -logits)).sum() / matches.sum().clamp(min=1)

    def learned_values(self) -> dict[str, float]:
        """Return the temperature, per unit of score, and the bias, for the history of a
        training."""
        return {"temperature": self.log_temperature.exp().item(), "bias": self.bias.item()}
