"""Results of a search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

Explain = Callable[[str, NDArray[Any]], Any]
"""Explanation of a result from its item_id and the query (d,), such as ``Heatmaps(model, features)``."""


@dataclass(frozen=True)
class SearchHit:
    """One result.

    Attributes:
        row: row of the item in the index.
        item_id: id of the item.
        score: cosine with the query, without the bias that the order depends on; R_w + R_s of a ``GroundingModel``.
        probability: probability that the result is relevant; None if the index is not calibrated.
        explanation: result of ``explain``, such as a heatmap of ``Heatmaps``; None without ``explain``.
    """

    row: int
    item_id: str
    score: float
    probability: float | None = None
    explanation: Any = None
