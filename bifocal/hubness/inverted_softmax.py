"""Inverted softmax."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bifocal.hubness.base import Array


@dataclass(frozen=True)
class InvertedSoftmax:
    """Log of the inverted softmax over the bank, in units of the score.

    Smith et al., "Offline bilingual word vectors, orthogonal transformations and the inverted softmax", ICLR 2017, eq.
    (5); over a bank of training queries in Bogolin et al., "Cross modal retrieval with querybank normalization", CVPR
    2022, section 3.3. exp(beta s) / sum over the bank of exp(beta s_b) has the order of
    s - log(mean of exp(beta s_b)) / beta. The dynamic variant of the second paper, which leaves some queries as they
    are, is not implemented.

    Args:
        beta: inverse temperature, per unit of score.

    Raises:
        ValueError: ``beta`` is not positive.

    Example:
        >>> InvertedSoftmax(beta=20.0).bias(np.array([[0.5, 0.1], [0.5, 0.1]])).tolist()
        [-0.5, -0.1]
    """

    beta: float = 20.0

    def __post_init__(self) -> None:
        for problem in self.conflicts({"beta": self.beta}):
            raise ValueError(problem)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Explain arguments out of range."""
        if arguments.get("beta", 1.0) <= 0:
            yield f"beta is {arguments['beta']}: expected a positive number"

    def bias(self, scores: Array) -> Array:
        """Return the biases (n,) of n candidates from their scores (B, n) with the bank."""
        highest = scores.max(axis=0)
        means: Array = np.exp(self.beta * (scores - highest)).mean(axis=0)
        bias: Array = -highest - np.log(means) / self.beta
        return bias
