"""Results of a query."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from numpy.typing import NDArray

Explain = Callable[[str, NDArray[Any]], Any]
"""Explanation of a result from its item_id and the query (d,), such as ``Heatmaps(model, features)``."""
Relevance = Literal["relevant", "maybe"]
Box = tuple[float, float, float, float]
Hit = TypeVar("Hit")


@dataclass(frozen=True)
class SearchHit:
    """One result.

    Attributes:
        row: row of the item in the index.
        item_id: id of the item.
        score: the number that sorts the results, higher is better: the cosine with the query, plus the item's hubness
            bias if the query is a sentence. In the mode "hybrid", the sum of the reciprocal ranks; in the mode
            "regions", the score of the best region; for a ``GroundingModel``, R_w + R_s.
        probability: probability that the item is relevant. Only sentences have one, in the modes "vectors" and
            "hybrid", if the index is calibrated.
        relevance: "relevant" from a probability of 0.5, if it reaches the threshold of the calibration; else "maybe";
            None without a probability.
        box: best region, in the mode "regions": x0 y0 x1 y1, as fractions of the image's width and height.
        explanation: result of ``explain``, such as a heatmap of ``Heatmaps``; None without ``explain``.
    """

    row: int
    item_id: str
    score: float
    probability: float | None = None
    relevance: Relevance | None = None
    box: Box | None = None
    explanation: Any = None


class Results(list[Hit]):
    """Results of a query, best first.

    Args:
        hits: the results.
        relevance: probability that the first result is relevant, 0 without a result; None if the query has none.
        found: whether something was found. False without a result. On the first page of a sentence in the mode
            "vectors", also false if the collection probably has nothing like it, see ``Calibration.found``: the
            results are then the closest items.
        unknown: words of the query that the model does not know: the others were searched.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), relevance: float | None = None, found: bool = True, unknown: Sequence[str] = ()
    ) -> None:
        super().__init__(hits)
        self.relevance, self.found, self.unknown = relevance, found and len(self) > 0, list(unknown)


class Ranking(NamedTuple):
    """Rows (n,) of an index, best first, with their scores, probabilities and boxes of regions; None for none.

    ``found`` is false if the collection probably has nothing like the query.
    """

    rows: NDArray[Any]
    scores: NDArray[Any]
    probabilities: NDArray[Any] | None = None
    boxes: Sequence[Box] | None = None
    found: bool = True

    def take(self, positions: Sequence[int]) -> "Ranking":
        """Return some of the rows."""
        boxes = None if self.boxes is None else [self.boxes[position] for position in positions]
        known = None if self.probabilities is None else self.probabilities[positions]
        return Ranking(self.rows[positions], self.scores[positions], known, boxes, self.found)
