"""The embedder as a model that MLflow serves: rows of a data frame in, embeddings out. Needs no MLflow itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.serving.embedder import INPUTS, Embedder
from bifocal.serving.limits import Limits, chunks

CHUNK_ROWS = {"text": 256, "image": 16, "features": 64}
"""Rows that are embedded at once: they bound the memory of a request."""


class EmbedderModel:
    """``predict`` of a registered model.

    Args:
        embedder: computes the embeddings.
        limits: of one call of ``predict``.
    """

    def __init__(self, embedder: Embedder, limits: Limits | None = None) -> None:
        self.embedder, self.limits = embedder, limits or Limits()

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
            ValueError: a row has no value, several values or one that the model does not accept; an image cannot be
                read; or an input is larger than the limits.
        """
        self.limits.check_rows(len(model_input))
        if not set(INPUTS) & set(model_input.columns):
            # MLflow drops columns that are not in the signature; if none is left, the frame arrives without rows.
            raise ValueError(f"no row has {' or '.join(self.columns)}; columns of other names are ignored")
        absent = pd.Series([None] * len(model_input), index=model_input.index, dtype=object)
        columns = [model_input.get(name, absent) for name in INPUTS]
        present = np.array([column.notna().to_numpy() for column in columns])
        self._check(present)
        rows = {name: np.flatnonzero(mask).tolist() for name, mask in zip(INPUTS, present, strict=True)}
        values = {
            name: {row: column.iloc[row] for row in rows[name]} for name, column in zip(INPUTS, columns, strict=True)
        }
        self.limits.check_sentences(values["text"])
        self.limits.check_images(values["image"])
        self.limits.check_features(values["features"], self.embedder.feature_dim)
        embeddings: list[list[float]] = [[]] * len(model_input)
        functions = (self.embedder.embed_sentences, self.embedder.embed_images, self.embedder.embed_features)
        for name, embed in zip(INPUTS, functions, strict=True):
            for chunk in chunks(rows[name], CHUNK_ROWS[name]):
                try:
                    results = embed([values[name][row] for row in chunk])
                except ValueError as error:  # such as a truncated image
                    raise ValueError(f"{name} in rows {chunk[0]} to {chunk[-1]}: {error}") from error
                for row, embedding in zip(chunk, results, strict=True):
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
    """Load a model with the limits of this process."""
    return EmbedderModel(Embedder(Path(data_path)), Limits.of_process())
