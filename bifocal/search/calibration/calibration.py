"""Calibration of scores: how probably a result is relevant, and whether a collection has anything
like a query."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.durable import write_json
from bifocal.onnx.files import read_array, read_json, read_whole, typed

Array = NDArray[Any]
CALIBRATION, NAMES = "calibration.json", "names.npy"
DEPTH = 10
"""Results whose scores the margin compares."""
UNREACHABLE = 2.0
"""Threshold that no probability reaches."""


@dataclass(frozen=True)
class Level:
    """Logistic regression on the score and the margin of a result of a sentence, with a threshold.

    Platt, "Probabilistic outputs for support vector machines", 1999, with a second variable. The
    score is the cosine plus the item's hubness bias. The margin is the score minus the mean score
    of the results 2 to 10 of the query. Without held-out captions, the reference takes the place of
    the margin, see ``Calibration.references``.
    """

    intercept: float
    score: float
    margin: float
    # least probability of the first result of a query with a match, see ``allowed_share``
    threshold: float
    error: float  # expected calibration error, as all rates cross-validated with held-out queries
    false_positive_rate: (
        float  # share of queries without a match whose first result reaches the threshold
    )
    recall: float  # share of relevant first results that reach the threshold
    queries: int
    reference: float = field(default=0.0, kw_only=True)

    def probabilities(
        self, scores: Array, best: Array | None = None, references: Array | None = None
    ) -> NDArray[np.float64]:
        """Return the probabilities of scores (Q, k).

        Args:
            best: the ten best scores; by default ``scores`` has them.
            references: (Q,), see ``Calibration.references``; None where they are None.
        """
        margins = scores - reference_scores(scores if best is None else best)[:, None]
        logits = self.intercept + self.score * scores + self.margin * margins
        if references is not None:
            logits = logits + self.reference * references[:, None]
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
        return probabilities

    def reached(self, scores: Array, references: Array | None = None) -> NDArray[np.bool_]:
        """Return for each query (Q,) whether its first result reaches the threshold, from scores
        (Q, k), best first."""
        if not scores.shape[1]:
            return np.zeros(len(scores), dtype=bool)
        return self.probabilities(scores, references=references)[:, 0] >= self.threshold


@dataclass(frozen=True)
class Calibration(Level):
    """Probability that a result is relevant, and whether the collection has anything like the
    query.

    The two differ in the queries without a match that they were fitted on. For the relevance of a
    result, these are near misses: a caption that is searched without the images that it describes.
    For the presence, they are absent
    concepts: a caption that is searched without every image whose captions come near it.
    """

    presence: Level | None = (
        None  # None if absent concepts are missing, because all captions are alike
    )
    certain: float = field(default=UNREACHABLE, kw_only=True)
    """Least probability of a result that is called found, see ``fitting.least_certain``."""
    names: Array | None = field(default=None, compare=False, repr=False)
    """Unit vectors (K, d) of names, where no captions were held out; else None."""

    def references(self, queries: Array) -> Array | None:
        """Return the best cosine (Q,) of each query (Q, d) of unit norm with a name; None without
        names."""
        return (
            None if self.names is None else (queries @ self.names.astype(np.float32).T).max(axis=1)
        )

    def found(self, scores: Array, references: Array | None = None) -> NDArray[np.bool_]:
        """Return for each query (Q,) whether the collection has anything like it, from its ten best
        scores (Q, k)."""
        return (self.presence or self).reached(scores, references)

    def write(self, directory: Path) -> None:
        """Write ``calibration.json``, and the names if there are some."""
        content = asdict(replace(self, names=None))
        del content["names"]
        write_json(directory / CALIBRATION, content)
        if self.names is not None:
            np.save(directory / NAMES, self.names, allow_pickle=False)

    @classmethod
    def read(cls, directory: Path) -> "Calibration | None":
        """Return the calibration in a directory; None if it has none."""
        file = directory / CALIBRATION
        if not file.is_file():
            return None
        content = read_json(file)
        if isinstance(presence := content.get("presence"), dict):
            presence.pop("certain", None)  # Bifocal 0.3.0 wrote it
        found: Calibration = read_whole(file, lambda _: typed(cls, content))
        names = read_array(directory / NAMES) if (directory / NAMES).is_file() else None
        return replace(found, names=names)


def reference_scores(scores: Array) -> Array:
    """Return the mean score (Q,) of the results 2 to 10 from scores (Q, k), best first; a single
    result is its own."""
    if scores.shape[1] < 2:
        return scores[:, 0] if scores.shape[1] else np.zeros(len(scores))
    mean: Array = scores[:, 1:DEPTH].mean(axis=1)
    return mean
