"""The contract of hubness corrections."""

from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]


class HubnessCorrection(Protocol):
    """A part of ``bifocal.hubness``: a bias of each candidate, which is added to its scores for every query.

    It depends only on the candidate's scores with a bank of training queries, so it is computed once, for the index.
    """

    def bias(self, scores: Array) -> Array:
        """Return the biases (n,) of n candidates from their scores (B, n) with the B queries of the bank."""
        ...
