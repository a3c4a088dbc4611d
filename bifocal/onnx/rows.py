"""Rows of a request: columns of a data frame as values by row, checked against the limits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.onnx.encoders import INPUTS, Array
from bifocal.onnx.limits import Limits, chunks

CHUNK_ROWS = {"text": 256, "image": 16, "features": 64}
"""Rows that are encoded at once: they bound the memory of a request."""


@dataclass(frozen=True)
class Rows:
    """Values of a request."""

    count: int
    present: NDArray[np.bool_]  # (3, N), whether a row has a value of each of INPUTS
    values: dict[str, dict[int, Any]]  # by input and row

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

    @classmethod
    def read_single(
        cls, frame: pd.DataFrame, accepted: Sequence[str], limits: Limits, feature_dim: int | None
    ) -> "Rows":
        """Read rows that have one value each, of the ``accepted`` inputs and within the limits."""
        limits.check_rows(len(frame))
        rows = cls.read(frame, accepted)
        wrong = np.flatnonzero(rows.present.sum(axis=0) != 1)
        if len(wrong):
            raise ValueError(f"row {wrong[0]} has {rows.names(wrong[0])}, expected one of {', '.join(accepted)}")
        rows.check_accepted(accepted)
        return rows.within(limits, feature_dim, repeated_images=True)

    def check_accepted(self, accepted: Sequence[str]) -> None:
        """Raise ``ValueError`` for the first value that is not one of the ``accepted`` inputs."""
        for name in INPUTS:
            if self.values[name] and name not in accepted:
                raise ValueError(f"row {min(self.values[name])} has {name}; this model accepts {', '.join(accepted)}")

    def within(self, limits: Limits, feature_dim: int | None, *, repeated_images: bool) -> "Rows":
        """Check the limits, return images as bytes; equal images count once unless ``repeated_images``."""
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

    def encode(
        self, functions: Mapping[str, Callable[[Sequence[Any]], Array]]
    ) -> Iterator[tuple[Sequence[int], Array]]:
        """Yield some rows and the outputs of their values, by one function for each input."""
        for name, encode in functions.items():
            values = self.values[name]
            for chunk in chunks(list(values), CHUNK_ROWS[name]):
                try:
                    yield chunk, encode([values[row] for row in chunk])
                except ValueError as error:  # such as a truncated image
                    raise ValueError(f"{name} in rows {chunk[0]} to {chunk[-1]}: {error}") from error

    def names(self, row: int) -> str:
        """Return the inputs of a row, such as "text and image"."""
        return " and ".join(np.array(INPUTS)[self.present[:, row]]) or "none"
