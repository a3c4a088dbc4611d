"""Models that MLflow serves: rows of a data frame in, embeddings or scores out. Needs no MLflow itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from bifocal.onnx.encoders import Embedder, PairScorer, scores_pairs
from bifocal.onnx.limits import Limits
from bifocal.onnx.pair_model import PairScorerModel
from bifocal.onnx.ranker import Ranker, RankerModel, ranks_images
from bifocal.onnx.rows import Rows


class Servable(Protocol):
    """A model with ``predict``; ``columns`` are the accepted ones, of ``bifocal.onnx.encoders.INPUTS``."""

    columns: tuple[str, ...]

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return one row for each row of the input; ``params`` is unused, and part of MLflow's interface."""

    def example(self) -> pd.DataFrame:
        """Return an input of two rows."""


class EmbedderModel:
    """``predict`` of a registered model with one vector per sentence and per image."""

    def __init__(self, embedder: Embedder, limits: Limits | None = None) -> None:
        self.embedder, self.limits, self.columns = embedder, limits or Limits(), embedder.inputs

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the column ``embedding``, an array (d,) float32 of unit norm for each row."""
        rows = Rows.read_single(model_input, self.columns, self.limits, self.embedder.feature_dim)
        embeddings = np.empty(rows.count, dtype=object)
        embedder = self.embedder
        for numbers, found in rows.encode(
            {"text": embedder.embed_sentences, "image": embedder.embed_images, "features": embedder.encode_inputs}
        ):
            # Arrays, not lists of floats: Spark converts a list of 1,024 numbers in 0.1 ms.
            for row, embedding in zip(numbers, found, strict=True):
                embeddings[row] = embedding
        return pd.DataFrame({"embedding": embeddings}, index=model_input.index)

    def example(self) -> pd.DataFrame:
        """Return two sentences."""
        return pd.DataFrame({"text": ["a dog runs on the grass", "two red circles above a square"]})


def open_model(directory: Path, limits: Limits | None = None) -> Servable:
    """Return an exported model: it returns embeddings, scores of pairs, or a ranking head's scores."""
    if ranks_images(directory):
        return RankerModel(Ranker(directory), limits)
    if scores_pairs(directory):
        return PairScorerModel(PairScorer(directory), limits)
    return EmbedderModel(Embedder(directory), limits)


def _load_pyfunc(data_path: str) -> Servable:
    """Load a model with the limits of this process."""
    return open_model(Path(data_path), Limits.of_process())
