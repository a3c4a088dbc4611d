"""Rows of a request: columns of a data frame as values by row, checked against the limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.serving.encoders import INPUTS
from bifocal.serving.limits import Limits


@dataclass(frozen=True)
class Rows:
    """Values of a request."""

    count: int
    present: NDArray[np.bool_]
    values: dict[str, dict[int, Any]]

    @classmethod
    def read(cls, frame: pd.DataFrame, accepted: Sequence[str]) -> "Rows":
        """Read the columns of ``INPUTS``; columns of other names are ignored."""
        if not set(INPUTS) & set(frame.columns):
            # MLflow drops columns that are not in the signature; if none is left, the frame arrives without rows.
            raise ValueError(f"no row has {' or '.join(accepted)}; columns of other names are ignored")
        absent = pd.Series([None] * len(frame), index=frame.index, dtype=object)
        columns = [frame.get(name, absent) for name in INPUTS]
        present = np.array([column.notna().to_numpy() for column in columns])
        values = {
            name: {row: value for row, (value, given) in enumerate(zip(column.to_list(), mask, strict=True)) if given}
            for name, column, mask in zip(INPUTS, columns, present, strict=True)
        }
        return cls(len(frame), present, values)

    def check_accepted(self, accepted: Sequence[str]) -> None:
        """Raise ``ValueError`` for the first value that is not one of the ``accepted`` inputs."""
        for name in INPUTS:
            if self.values[name] and name not in accepted:
                raise ValueError(f"row {min(self.values[name])} has {name}; this model accepts {', '.join(accepted)}")

    def within(self, limits: Limits, feature_dim: int | None, *, repeated_images: bool) -> "Rows":
        """Return the rows with image files as bytes."""
        limits.check_sentences(self.values["text"])
        images = self.values["image"]
        if repeated_images:
            files = limits.read_images(images)
        else:
            first = {image: row for row, image in reversed(images.items())}
            different = limits.read_images({row: images[row] for row in sorted(first.values())})
            files = {row: different[first[image]] for row, image in images.items()}
        limits.check_features(self.values["features"], feature_dim)
        return replace(self, values={**self.values, "image": files})

    def names(self, row: int) -> str:
        """Return the inputs of a row, such as "text and image"."""
        return " and ".join(np.array(INPUTS)[self.present[:, row]]) or "none"
