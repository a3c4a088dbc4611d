"""Calibration of scores: the probability that a result is relevant, and a threshold for "nothing found"."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
CALIBRATION = "calibration.json"
DEPTH = 10
"""Results whose scores the margin compares."""
RELEVANT = 0.5
"""Least probability of a result that is called relevant."""


@dataclass(frozen=True)
class Calibration:
    """Logistic regression of the relevance of a result on its score and its margin, for sentences as queries.

    Platt, "Probabilistic outputs for support vector machines", 1999, with a second variable. The score is the cosine
    plus the item's hubness bias. The margin is the score minus the mean score of the results 2 to 10 of the query.

    Example:
        >>> calibration = Calibration(0.0, 2.0, 0.0, 0.5, 0.0, 0.0, 1.0, 100)
        >>> calibration.probabilities(np.array([[0.5, 0.0]])).round(2).tolist()
        [[0.73, 0.5]]
    """

    intercept: float
    score: float
    margin: float
    threshold: float  # probability of the first result from which a query counts as found, see ``allowed_share``
    error: float  # expected calibration error, as all rates cross-validated with held-out queries
    false_positive_rate: float  # share of queries without a match whose first result reaches the threshold
    recall: float  # share of relevant first results that reach the threshold
    queries: int

    @property
    def relevant(self) -> float:
        """Least probability of a relevant result: more probable than not, and not below the threshold."""
        return max(RELEVANT, self.threshold)

    def probabilities(self, scores: Array, best: Array | None = None) -> NDArray[np.float64]:
        """Return the probabilities of scores (Q, k); ``best`` has the ten best scores, by default ``scores`` has."""
        margins = scores - reference_scores(scores if best is None else best)[:, None]
        logits = self.intercept + self.score * scores + self.margin * margins
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
        return probabilities

    def write(self, directory: Path) -> None:
        """Write ``calibration.json``."""
        (directory / CALIBRATION).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> "Calibration | None":
        """Return the calibration in a directory; None if it has none."""
        file = directory / CALIBRATION
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


def reference_scores(scores: Array) -> Array:
    """Return the mean score (Q,) of the results 2 to 10 from scores (Q, k), best first; a single result is its own."""
    if scores.shape[1] < 2:
        return scores[:, 0] if scores.shape[1] else np.zeros(len(scores))
    mean: Array = scores[:, 1:DEPTH].mean(axis=1)
    return mean
