"""Limits of one request to a served model, checked before anything is decoded or computed."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any, TypeVar

import numpy as np

from bifocal.onnx.image_limits import MAX_BYTES
from bifocal.onnx.images import image_size
from bifocal.onnx.pixels import ImageFile, file_bytes, file_size

PREFIX = "BIFOCAL_MAX_"
T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Largest inputs that a model accepts; 0 means no limit."""

    rows: int = 4096
    characters: int = 10_000  # of a sentence
    image_bytes: int = 20_000_000
    pixels: int = 50_000_000  # of an image
    total_pixels: int = 500_000_000  # of all images of a request
    regions: int = 4096
    decode_seconds: int = 5  # of one image
    decoded_bytes: int = 700_000_000  # memory of each process that decodes images

    @classmethod
    def of_process(cls, environment: Mapping[str, str] = os.environ) -> "Limits":
        """Return limits with ``BIFOCAL_MAX_ROWS`` and so on; none for Spark, whose rows are the
        user's own."""
        if "pyspark.worker" in sys.modules:
            return cls(rows=0, total_pixels=0)
        values = {}
        for field in fields(cls):
            name = PREFIX + field.name.upper()
            if name in environment:
                if not environment[name].isdecimal():
                    raise ValueError(
                        f"{name} is {environment[name]!r}, expected a number; 0 means no limit"
                    )
                values[field.name] = int(environment[name])
        return cls(**values)

    def check_rows(self, count: int) -> None:
        """Raise ``ValueError`` if a request has too many rows."""
        self._check("rows", count, f"the request has {count} rows")

    def check_sentences(self, sentences: Mapping[int, Any]) -> None:
        """Raise ``ValueError`` for the first row whose sentence is too long, or not a string."""
        for row, sentence in sentences.items():
            if not isinstance(sentence, str):
                raise ValueError(
                    f"row {row} has {type(sentence).__name__} as text, expected a string"
                )
            self._check(
                "characters", len(sentence), f"the text of row {row} has {len(sentence)} characters"
            )

    def read_images(self, images: Mapping[int, ImageFile]) -> dict[int, bytes]:
        """Return the image files as bytes; raise ``ValueError`` for the first that is too large or
        not an image."""
        total = 0
        files: dict[int, bytes] = {}
        for row, image in images.items():
            try:
                files[row] = self.read_file(image)
                width, height = image_size(
                    BytesIO(files[row]), self.pixels or None, self.image_bytes or MAX_BYTES
                )
            except ValueError as error:
                raise ValueError(
                    f"the image of row {row} cannot be read: {error}; expected the base64 of "
                    "an image file"
                ) from error
            total += width * height
            self.check_pixels(total, row)
        return files

    def read_file(self, image: ImageFile) -> bytes:
        """Return the bytes of an image file; raise ``ValueError`` for a longer one, before its
        base64 is decoded."""
        self._check("image_bytes", file_size(image), f"the file has {file_size(image)} bytes")
        return file_bytes(image)

    def check_pixels(self, total: int, row: int) -> None:
        """Raise ``ValueError`` if the images of a request have too many pixels up to a row."""
        self._check("total_pixels", total, f"the images up to row {row} have {total} pixels")

    def check_features(self, features: Mapping[int, Any], width: int | None) -> None:
        """Raise ``ValueError`` for the first row whose features are not R lists of D finite
        numbers."""
        for row, regions in features.items():
            self._check(
                "regions", len(regions), f"row {row} has features of {len(regions)} regions"
            )
            try:
                array = np.asarray([np.asarray(region) for region in regions], dtype=np.float32)
                valid = array.ndim == 2 and array.size > 0 and width in (None, array.shape[1])
            except (TypeError, ValueError):
                valid = False
            if not valid:
                dimensions = "equally many" if width is None else width
                raise ValueError(
                    f"row {row} has invalid features: expected one list per region, of "
                    f"{dimensions} numbers"
                )
            if not np.isfinite(array).all():
                raise ValueError(f"row {row} has features that are not finite numbers")

    def _check(self, name: str, value: int, found: str) -> None:
        limit = getattr(self, name)
        if limit and value > limit:
            raise ValueError(
                f"{found}, at most {limit} are accepted ({PREFIX}{name.upper()} of the server)"
            )


def chunks(rows: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """Yield ``rows`` in parts of at most ``size``."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
