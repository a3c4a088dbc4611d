"""A collection of images that can be searched: their vectors and what is known of them, without torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.search.exact import nearest_rows, rank
from bifocal.search.vectors import unit_vectors

VECTORS, BIAS, IMAGES, DESCRIPTION = "vectors.npy", "bias.npy", "images.parquet", "collection.json"


class ImageHit(NamedTuple):
    """One result of a search.

    Attributes:
        score: cosine with the query, without the bias that the order depends on.
        path: the image file; None if the corpus publishes only features.
        captions: sentences of the image; empty if it has none.
    """

    image_id: str
    score: float
    path: Path | None
    captions: list[str]


@dataclass(frozen=True)
class RunCollection:
    """Vectors of N images by one model.

    Attributes:
        vectors: (N, d) float16, of unit norm.
        images: one row per image: ``image_id``, ``path`` (absolute, or null) and ``captions`` (list).
        model: hash of the ONNX model that computed the vectors, and of the bank of the biases.
        bias: (N,) float32, added to the scores of sentences, see ``bifocal.hubness``; None for no correction.
    """

    vectors: NDArray[np.float16]
    images: pd.DataFrame
    model: str
    bias: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.images):
            raise ValueError(f"{len(self.vectors)} vectors and {len(self.images)} images: expected as many of each")

    def __len__(self) -> int:
        """Return N."""
        return len(self.images)

    def nearest(self, query: NDArray[Any], k: int = 5, *, corrected: bool = False) -> list[ImageHit]:
        """Return the ``k`` images of the highest cosine with ``query`` (d,), best first; equal scores by their order.

        Args:
            corrected: order by the cosine plus the bias of each image, if the collection has biases. They are meant for
                sentences as queries.

        Raises:
            ValueError: the query has another dimension, or is zero.
        """
        if query.shape != self.vectors.shape[1:] or not np.linalg.norm(query) > 0:
            raise ValueError(f"query {query.shape}, expected a vector {self.vectors.shape[1:]} that is not zero")
        unit, bias = unit_vectors(query[None]), self.bias if corrected else None
        candidates = nearest_rows(self.vectors, unit, k, bias, None)
        (scores,), (rows,) = rank(self.vectors, unit, candidates, k, bias)
        return [self._hit(row, score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    def _hit(self, row: int, score: float) -> ImageHit:
        entry = self.images.iloc[row]
        path = Path(entry["path"]) if isinstance(entry["path"], str) else None
        return ImageHit(str(entry["image_id"]), score, path, [str(text) for text in entry["captions"]])

    def write(self, directory: Path) -> None:
        """Write the collection to ``directory``, completely or not at all."""
        partial = directory.with_name(directory.name + ".partial")
        partial.mkdir(parents=True, exist_ok=True)
        np.save(partial / VECTORS, self.vectors)
        if self.bias is not None:
            np.save(partial / BIAS, self.bias)
        self.images.to_parquet(partial / IMAGES)
        (partial / DESCRIPTION).write_text(json.dumps({"model": self.model}) + "\n")
        if directory.exists():
            for file in directory.iterdir():
                file.unlink()
            directory.rmdir()
        partial.rename(directory)

    @classmethod
    def read(cls, directory: Path) -> "RunCollection":
        """Open the collection in ``directory``; the vectors are memory-mapped.

        Raises:
            FileNotFoundError: the directory holds no collection.
        """
        if not (directory / DESCRIPTION).is_file():
            raise FileNotFoundError(f"{directory} holds no collection: it has no {DESCRIPTION}")
        model = json.loads((directory / DESCRIPTION).read_text())["model"]
        vectors: NDArray[np.float16] = np.load(directory / VECTORS, mmap_mode="r")
        bias = np.load(directory / BIAS) if (directory / BIAS).is_file() else None
        return cls(vectors, pd.read_parquet(directory / IMAGES), model, bias)
