"""Cross-domain similarity local scaling."""

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
