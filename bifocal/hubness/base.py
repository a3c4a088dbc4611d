"""The contract of hubness corrections."""

from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]


class HubnessCorrection(Protocol):
    """A part of ``bifocal.hubness``: a bias of each candidate, which is added to its scores for every query.

    The bias of a candidate depends on its scores with a bank of training queries alone. So it is computed once, when
    the candidate is indexed, and a search needs no other queries.
    """

    def bias(self, scores: Array) -> Array:
        """Return the biases (n,) of n candidates from their scores (B, n) with the B queries of the bank."""
        ...
