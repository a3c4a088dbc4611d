"""The embedder as a model that MLflow serves: rows of a data frame in, embeddings out. Needs no MLflow itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.serving.embedder import INPUTS, Embedder


class EmbedderModel:
    """``predict`` of a registered model.

    Args:
        embedder: computes the embeddings.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    @property
    def columns(self) -> tuple[str, ...]:
        """Accepted columns, see ``Embedder.inputs``."""
        return self.embedder.inputs

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return one embedding for each row.

        Args:
            model_input: columns of ``bifocal.serving.embedder.INPUTS``; each row has a value in exactly one of them.
            params: unused; part of MLflow's interface.

        Returns:
            Column ``embedding``: lists of d numbers, of unit norm.

        Raises:
            ValueError: a row has no value, several values or one that the model does not accept, or an image cannot
                be read.
        """
        if not set(INPUTS) & set(model_input.columns):
            # MLflow drops columns that are not in the signature; if none is left, the frame arrives without rows.
            raise ValueError(f"no row has {' or '.join(self.columns)}; columns of other names are ignored")
        absent = pd.Series([None] * len(model_input), index=model_input.index, dtype=object)
        columns = [model_input.get(name, absent) for name in INPUTS]
        present = np.array([column.notna().to_numpy() for column in columns])
        self._check(present)
        embeddings: list[list[float]] = [[]] * len(model_input)
        functions = (self.embedder.embed_sentences, self.embedder.embed_images, self.embedder.embed_features)
        for column, mask, embed in zip(columns, present, functions, strict=True):
            rows = np.flatnonzero(mask)
            if len(rows):
                for row, embedding in zip(rows, embed(column.iloc[rows].tolist()), strict=True):
                    embeddings[row] = embedding.tolist()
        return pd.DataFrame({"embedding": embeddings}, index=model_input.index)

    def _check(self, present: NDArray[np.bool_]) -> None:
        """Raise ``ValueError`` unless each row has one accepted input; ``present`` is (3 inputs, N rows)."""
        accepted = ", ".join(self.columns)
        wrong = np.flatnonzero(present.sum(axis=0) != 1)
        if len(wrong):
            values = " and ".join(np.array(INPUTS)[present[:, wrong[0]]]) or "none"
            raise ValueError(f"row {wrong[0]} has {values}, expected one of {accepted}")
        for name, mask in zip(INPUTS, present, strict=True):
            if mask.any() and name not in self.columns:
                raise ValueError(f"row {np.flatnonzero(mask)[0]} has {name}; this model accepts {accepted}")


def _load_pyfunc(data_path: str) -> EmbedderModel:
    """Load a model; MLflow calls this function by its name, so the model is no pickle."""
    return EmbedderModel(Embedder(Path(data_path)))
