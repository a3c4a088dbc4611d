"""Scores of images from the ONNX graph of a ranking head."""

import base64
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from bifocal.serving.encoders import ImageGraph
from bifocal.serving.limits import Limits, chunks
from bifocal.serving.rows import Rows

GRAPH, LABELS = "ranking_head.onnx", "labels.json"
CHUNK_ROWS = {"image": 16, "features": 64}
"""Rows that are scored at once: they bound the memory of a request."""


class Ranker(ImageGraph):
    """The ONNX graph of a ranking head with its backbone."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, GRAPH)
        self.labels: list[str] = json.loads((directory / LABELS).read_text())["labels"]


class RankerModel:
    """``predict`` of a registered ranking head."""

    def __init__(self, ranker: Ranker, limits: Limits | None = None) -> None:
        self.ranker, self.limits = ranker, limits or Limits()

    @property
    def columns(self) -> tuple[str, ...]:
        """Accepted columns, see ``ImageGraph.inputs``."""
        return self.ranker.inputs

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the scores of each row's image."""
        self.limits.check_rows(len(model_input))
        rows = Rows.read(model_input, self.columns)
        rows.check_accepted(self.columns)
        wrong = np.flatnonzero(rows.present.sum(axis=0) != 1)
        if len(wrong):
            raise ValueError(f"row {wrong[0]} has {rows.names(wrong[0])}, expected one of {', '.join(self.columns)}")
        rows = rows.within(self.limits, self.ranker.feature_dim, repeated_images=True)
        scores = np.zeros((rows.count, len(self.ranker.labels)))
        for name, encode in (("image", self.ranker.encode_images), ("features", self.ranker.encode_features)):
            values = rows.values[name]
            for chunk in chunks(list(values), CHUNK_ROWS[name]):
                try:
                    scores[list(chunk)] = encode([values[row] for row in chunk])
                except ValueError as error:  # such as a truncated image
                    raise ValueError(f"{name} in rows {chunk[0]} to {chunk[-1]}: {error}") from error
        return pd.DataFrame(scores, columns=self.ranker.labels, index=model_input.index)

    def example(self) -> pd.DataFrame:
        """Return two images of one color, or two arrays of features."""
        if "image" in self.columns:
            file = BytesIO()
            Image.new("RGB", (8, 8), "gray").save(file, "PNG")
            return pd.DataFrame({"image": 2 * [base64.b64encode(file.getvalue()).decode()]})
        return pd.DataFrame({"features": pd.Series(2 * [np.zeros((1, self.ranker.feature_dim or 1)).tolist()])})


def ranks_images(directory: Path) -> bool:
    """Return whether an exported model is a ranking head, which needs ``Ranker``."""
    return (directory / GRAPH).is_file()
