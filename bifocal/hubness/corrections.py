"""Corrections of scores by a bank: CSLS and the inverted softmax."""

from dataclasses import dataclass

import numpy as np

from bifocal.hubness.bank import Array
from bifocal.registry import CheckedByConstruction


@dataclass(frozen=True)
class CSLS(CheckedByConstruction):
    """Half the mean score of a candidate's nearest queries of the bank, subtracted from its scores.

    Conneau et al., "Word translation without parallel data", ICLR 2018, eq. (4): CSLS(x, y) = 2
    cos(x, y) - r(x) - r(y). For one query x, r(x) is constant, so cos(x, y) - r(y) / 2 gives the
    same order. The paper takes r(y) over the queries of the test; here it is taken over the bank.

    Args:
        k: nearest queries of the bank.

    Example:
        >>> CSLS(k=2).bias(np.array([[0.8, 0.1], [0.4, 0.1], [0.0, 0.1]])).round(2).tolist()
        [-0.3, -0.05]
    """

    k: int = 10

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k is {self.k}: expected 1 or more")

    def bias(self, scores: Array) -> Array:
        """Return the biases (n,) of n candidates from their scores (B, n) with the bank."""
        k = min(self.k, len(scores))
        nearest: Array = np.partition(scores, len(scores) - k, axis=0)[len(scores) - k :]
        bias: Array = -nearest.mean(axis=0) / 2
        return bias


@dataclass(frozen=True)
class InvertedSoftmax(CheckedByConstruction):
    """Log of the inverted softmax over the bank, in units of the score.

    Smith et al., "Offline bilingual word vectors, orthogonal transformations and the inverted
    softmax", ICLR 2017, eq. (5); over a bank of training queries in Bogolin et al., "Cross modal
    retrieval with querybank normalization", CVPR 2022, section 3.3, without its dynamic variant.
    exp(beta s) / sum over the bank of exp(beta s_b) has the order of s - log(mean of exp(beta s_b))
    / beta.

    Args:
        beta: inverse temperature, per unit of score.

    Example:
        >>> InvertedSoftmax(beta=20.0).bias(np.array([[0.5, 0.1], [0.5, 0.1]])).tolist()
        [-0.5, -0.1]
    """

    beta: float = 20.0

    def __post_init__(self) -> None:
        if self.beta <= 0:
            raise ValueError(f"beta is {self.beta}: expected a positive number")

    def bias(self, scores: Array) -> Array:
        """Return the biases (n,) of n candidates from their scores (B, n) with the bank."""
        highest = scores.max(axis=0)
        means: Array = np.exp(self.beta * (scores - highest)).mean(axis=0)
        bias: Array = -highest - np.log(means) / self.beta
        return bias
