"""Pairwise sigmoid loss: each pair on its own."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from bifocal.scores import Scores, check_matches


class SigmoidLoss(nn.Module):
    """Whether each image and caption of the batch match, pair by pair.

    Zhai et al., "Sigmoid loss for language image pre-training", ICCV 2023, eq. (2) of section 3.2; the temperature and
    the bias are parameters of the loss: give them to the optimizer.

    Args:
        temperature: t at the start, per unit of the score; its logarithm is learned.
        bias: b at the start, which outweighs that most pairs are negatives.

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the sum over all pairs divided by the number of matches.
    """

    def __init__(self, temperature: float = 10.0, bias: float = -10.0) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.bias = nn.Parameter(torch.tensor(float(bias)))

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        logits = scores.cross * self.log_temperature.exp() + self.bias
        return -logsigmoid(torch.where(matches, logits, -logits)).sum() / matches.sum()
