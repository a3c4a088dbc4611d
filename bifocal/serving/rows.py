"""Rows of a request: columns of a data frame as values by row, checked against the limits."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.serving.encoders import INPUTS
from bifocal.serving.limits import Limits


@dataclass(frozen=True)
class Rows:
    """Values of a request.

    Attributes:
        count: N, rows of the request.
        present: (3, N) bool, whether a row has a value of each of ``INPUTS``.
        values: value by row, for each of ``INPUTS``; an image file that came as bytes is base64.
    """

    count: int
    present: NDArray[np.bool_]
    values: dict[str, dict[int, Any]]

    @classmethod
    def read(cls, frame: pd.DataFrame, accepted: Sequence[str]) -> "Rows":
        """Read the columns of ``INPUTS``; columns of other names are ignored.

        Raises:
            ValueError: no column has one of the ``accepted`` names.
        """
        if not set(INPUTS) & set(frame.columns):
            # MLflow drops columns that are not in the signature; if none is left, the frame arrives without rows.
            raise ValueError(f"no row has {' or '.join(accepted)}; columns of other names are ignored")
        absent = pd.Series([None] * len(frame), index=frame.index, dtype=object)
        columns = [frame.get(name, absent) for name in INPUTS]
        present = np.array([column.notna().to_numpy() for column in columns])
        values = {
            name: {int(row): column.iloc[row] for row in np.flatnonzero(mask)}
            for name, column, mask in zip(INPUTS, columns, present, strict=True)
        }
        values["image"] = {row: _as_text(image) for row, image in values["image"].items()}
        return cls(len(frame), present, values)

    def check_accepted(self, accepted: Sequence[str]) -> None:
        """Raise ``ValueError`` for the first value that is not one of the ``accepted`` inputs."""
        for name in INPUTS:
            if self.values[name] and name not in accepted:
                raise ValueError(f"row {min(self.values[name])} has {name}; this model accepts {', '.join(accepted)}")

    def check_limits(self, limits: Limits, feature_dim: int | None, *, repeated_images: bool) -> None:
        """Raise ``ValueError`` for the first value that is invalid or larger than the limits.

        Args:
            feature_dim: D of the features of a region, if the model has a fixed one.
            repeated_images: whether equal images count again, because the model decodes each of them.
        """
        limits.check_sentences(self.values["text"])
        images = self.values["image"]
        first = {image: row for row, image in reversed(images.items())}
        limits.check_images(images if repeated_images else {row: images[row] for row in sorted(first.values())})
        limits.check_features(self.values["features"], feature_dim)

    def names(self, row: int) -> str:
        """Return the inputs of a row, such as "text and image"."""
        return " and ".join(np.array(INPUTS)[self.present[:, row]]) or "none"


def _as_text(image: Any) -> Any:
    """Return the base64 of an image file that came as bytes, such as from a binary column of Spark."""
    return base64.b64encode(image).decode() if isinstance(image, bytes | bytearray) else image
