"""Models that MLflow serves: rows of a data frame in, embeddings or scores out. Needs no MLflow itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from bifocal.serving.embedder import Embedder
from bifocal.serving.encoders import INPUTS
from bifocal.serving.limits import Limits, chunks
from bifocal.serving.pair_model import PairScorerModel
from bifocal.serving.pair_scorer import PairScorer, scores_pairs
from bifocal.serving.ranker import Ranker, RankerModel, ranks_images
from bifocal.serving.rows import Rows

CHUNK_ROWS = {"text": 256, "image": 16, "features": 64}
"""Rows that are embedded at once: they bound the memory of a request."""


class Servable(Protocol):
    """A model with ``predict``."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Accepted columns, of ``bifocal.serving.encoders.INPUTS``."""

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return one row for each row of the input."""

    def example(self) -> pd.DataFrame:
        """Return an input of two rows."""


class EmbedderModel:
    """``predict`` of a registered model with one vector per sentence and per image."""

    def __init__(self, embedder: Embedder, limits: Limits | None = None) -> None:
        self.embedder, self.limits = embedder, limits or Limits()

    @property
    def columns(self) -> tuple[str, ...]:
        """Accepted columns, see ``Encoders.inputs``."""
        return self.embedder.inputs

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return one embedding for each row."""
        self.limits.check_rows(len(model_input))
        rows = Rows.read(model_input, self.columns)
        wrong = np.flatnonzero(rows.present.sum(axis=0) != 1)
        if len(wrong):
            accepted = ", ".join(self.columns)
            raise ValueError(f"row {wrong[0]} has {rows.names(wrong[0])}, expected one of {accepted}")
        rows.check_accepted(self.columns)
        rows = rows.within(self.limits, self.embedder.feature_dim, repeated_images=True)
        embeddings = np.empty(rows.count, dtype=object)
        functions = (self.embedder.embed_sentences, self.embedder.embed_images, self.embedder.embed_features)
        for name, embed in zip(INPUTS, functions, strict=True):
            values = rows.values[name]
            for chunk in chunks(list(values), CHUNK_ROWS[name]):
                try:
                    results = embed([values[row] for row in chunk])
                except ValueError as error:  # such as a truncated image
                    raise ValueError(f"{name} in rows {chunk[0]} to {chunk[-1]}: {error}") from error
                # Arrays, not lists of floats: Spark converts a list of 1,024 numbers in 0.1 ms.
                for row, embedding in zip(chunk, results, strict=True):
                    embeddings[row] = embedding
        return pd.DataFrame({"embedding": embeddings}, index=model_input.index)

    def example(self) -> pd.DataFrame:
        """Return two sentences."""
        return pd.DataFrame({"text": ["a dog runs on the grass", "two red circles above a square"]})


def open_model(directory: Path, limits: Limits | None = None) -> Servable:
    """Return the exported model in ``directory``.

    It gives embeddings; scores of pairs if it has no single vectors; or the scores of a ranking head.
    """
    if ranks_images(directory):
        return RankerModel(Ranker(directory), limits)
    if scores_pairs(directory):
        return PairScorerModel(PairScorer(directory), limits)
    return EmbedderModel(Embedder(directory), limits)


def _load_pyfunc(data_path: str) -> Servable:
    """Load a model with the limits of this process."""
    return open_model(Path(data_path), Limits.of_process())
