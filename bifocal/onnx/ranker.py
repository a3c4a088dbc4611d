"""Scores of images from the ONNX graph of a ranking head."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bifocal.onnx.damage import read_json
from bifocal.onnx.encoders import ImageGraph
from bifocal.onnx.image_files import gray_image
from bifocal.onnx.limits import Limits
from bifocal.onnx.rows import Rows

GRAPH, LABELS = "ranking_head.onnx", "labels.json"


class Ranker(ImageGraph):
    """The ONNX graph of a ranking head with its backbone; ``labels`` name the C scores of an image."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, GRAPH)
        self.labels: list[str] = read_json(directory / LABELS)["labels"]


class RankerModel:
    """``predict`` of a registered ranking head."""

    def __init__(self, ranker: Ranker, limits: Limits | None = None) -> None:
        self.ranker, self.limits, self.columns = ranker, limits or Limits(), ranker.inputs

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return a column per label: a score of each row's image, higher for more of it; not a probability."""
        rows = Rows.read_single(model_input, self.columns, self.limits, self.ranker.feature_dim)
        scores = np.zeros((rows.count, len(self.ranker.labels)))
        for numbers, found in rows.encode({"image": self.ranker.encode_images, "features": self.ranker.encode_inputs}):
            scores[list(numbers)] = found
        return pd.DataFrame(scores, columns=self.ranker.labels, index=model_input.index)

    def example(self) -> pd.DataFrame:
        """Return two images of one color, or two arrays of features."""
        if "image" in self.columns:
            return pd.DataFrame({"image": 2 * [gray_image()]})
        return pd.DataFrame({"features": pd.Series(2 * [np.zeros((1, self.ranker.feature_dim or 1)).tolist()])})


def ranks_images(directory: Path) -> bool:
    """Return whether an exported model is a ranking head, which needs ``Ranker``."""
    return (directory / GRAPH).is_file()
