"""Probes: pairs of a caption and its image that were held out of training, searched again each week."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.search.calibration.calibration import DEPTH
from bifocal.search.calibration.caption_relevance import relevant_rows
from bifocal.search.calibration.fitting import calibration_error, first_results
from bifocal.search.index.index import SearchIndex
from bifocal.search.query import Array, SentenceEmbedder
from bifocal.search.search import Search
from bifocal.search.vectors import unit_vectors

BATCH = 64
COLUMNS = ("item_id", "caption")


@dataclass(frozen=True)
class Probes:
    """Outcomes of n probes.

    Attributes:
        keys: hash of each pair; the texts are not kept.
        found: (n,) bool, whether the image is among the ten best results.
        relevant: (n,) bool, whether the caption describes the best one, see ``caption_relevance``.
        probabilities: (n, 2). The first column belongs to the best result. The second column belongs to the best
            result of a search without the items that the caption describes. None if the index is not calibrated.
    """

    keys: Sequence[str]
    found: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    probabilities: NDArray[np.float64] | None

    @property
    def recall(self) -> float:
        """Share of the probes whose image is among the ten best results."""
        return float(self.found.mean())

    @property
    def calibration_error(self) -> float:
        """Expected calibration error, see ``bifocal.search.calibration.fitting.calibration_error``."""
        assert self.probabilities is not None
        return calibration_error(self.probabilities.ravel(), self._relevant.ravel())

    @property
    def losses(self) -> NDArray[np.float64]:
        """(n,), mean squared error of the probabilities of a probe (Brier, 1950)."""
        assert self.probabilities is not None
        loss: NDArray[np.float64] = ((self.probabilities - self._relevant) ** 2).mean(axis=1)
        return loss

    @property
    def _relevant(self) -> NDArray[np.bool_]:
        """(n, 2), whether the best result is relevant: never, without the relevant items."""
        return np.stack([self.relevant, np.zeros_like(self.relevant)], axis=1)

    def of(self, keys: Sequence[str]) -> "Probes":
        """Return the outcomes of the pairs with these keys, in this order."""
        row_of = {key: row for row, key in enumerate(self.keys)}
        rows = np.array([row_of[key] for key in keys], dtype=int)
        probabilities = None if self.probabilities is None else self.probabilities[rows]
        return Probes(list(keys), self.found[rows], self.relevant[rows], probabilities)


def read_pairs(file: Path) -> pd.DataFrame:
    """Return the pairs in a CSV file, with the columns ``item_id`` and ``caption``.

    Raises:
        ValueError: a column is missing, or a pair occurs twice.
    """
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(f"{file} has no column {missing[0]!r}: expected {' and '.join(COLUMNS)}")
    pairs = table[list(COLUMNS)]
    if pairs.duplicated().any():
        twice = pairs[pairs.duplicated()].iloc[0]
        raise ValueError(f"{file} has the pair of {twice['item_id']!r} and {twice['caption']!r} twice: remove one")
    return pairs


def embed(model: SentenceEmbedder, sentences: Sequence[str]) -> NDArray[np.float32]:
    """Return the unit vectors (n, d) of at least one sentence."""
    batches = [sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH)]
    return unit_vectors(np.concatenate([model.embed_sentences(batch) for batch in batches]))


def search_probes(model: SentenceEmbedder, index: SearchIndex, pairs: pd.DataFrame) -> Probes | None:
    """Search every pair (``item_id``, ``caption``) whose image is in the index; None if there is none."""
    kept = pairs[pairs["item_id"].isin(set(compress(index.ids, ~index.removed)))]
    if not len(kept):
        return None
    queries = embed(model, kept["caption"].tolist())
    own = np.array([index.row(item_id) for item_id in kept["item_id"]])
    found = Search(index).batch(queries, DEPTH, sentences=True)
    first = [hits[0].row if hits else -1 for hits in found]
    described = relevant_rows(index.items, kept["caption"].tolist(), own.tolist())
    relevant = np.array([row in known for row, known in zip(first, described, strict=True)], dtype=bool)
    probabilities = None
    if index.calibration is not None and len(index) >= DEPTH + 2:
        scores, _ = first_results(index, queries, described)
        probabilities = index.calibration.probabilities(scores)[:, 0].reshape(2, -1).T
    pair_texts = kept["item_id"] + "\0" + kept["caption"]
    keys = [sha256(text.encode()).hexdigest()[:24] for text in pair_texts]
    ten_best = [any(hit.row == row for hit in hits) for hits, row in zip(found, own.tolist(), strict=True)]
    return Probes(keys, np.array(ten_best, dtype=bool), relevant, probabilities)


def nothing_found(index: SearchIndex, queries: Array) -> int | None:
    """Return for how many queries (n, d) no result is relevant; None if the index is not calibrated."""
    if index.calibration is None:
        return None
    return sum(not results.found for results in Search(index).batch(queries, 1, sentences=True))
