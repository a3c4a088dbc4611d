"""Models that MLflow serves: rows of a data frame in, embeddings or scores out. Needs no MLflow
itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.onnx.encoders import INPUTS, Array, Embedder, ImageGraph, PairScorer, scores_pairs
from bifocal.onnx.files import read_json, typed
from bifocal.onnx.limits import Limits, chunks
from bifocal.onnx.pixels import gray_image

CHUNK_ROWS = {"text": 256, "image": 16, "features": 64}
"""Rows that are encoded at once: they bound the memory of a request."""
GRAPH, LABELS = "ranking_head.onnx", "labels.json"
IMAGES, SENTENCES = 16, 64
"""Different images, and sentences, that are encoded at once: they bound the memory of a request."""


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
            # MLflow drops columns that are not in the signature; if none is left, the frame arrives
            # without rows.
            raise ValueError(
                f"no row has {' or '.join(accepted)}; columns of other names are ignored"
            )
        absent = pd.Series([None] * len(frame), index=frame.index, dtype=object)
        columns = [frame.get(name, absent) for name in INPUTS]
        present = np.array([column.notna().to_numpy() for column in columns])
        values = {
            name: {
                row: value
                for row, (value, given) in enumerate(zip(column.to_list(), mask, strict=True))
                if given
            }
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
            raise ValueError(
                f"row {wrong[0]} has {rows.names(wrong[0])}, expected one of {', '.join(accepted)}"
            )
        rows.check_accepted(accepted)
        return rows.within(limits, feature_dim, repeated_images=True)

    def check_accepted(self, accepted: Sequence[str]) -> None:
        """Raise ``ValueError`` for the first value that is not one of the ``accepted`` inputs."""
        for name in INPUTS:
            if self.values[name] and name not in accepted:
                raise ValueError(
                    f"row {min(self.values[name])} has {name}; this model accepts "
                    f"{', '.join(accepted)}"
                )

    def within(self, limits: Limits, feature_dim: int | None, *, repeated_images: bool) -> "Rows":
        """Check the limits, return images as bytes; equal images count once unless
        ``repeated_images``."""
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
                    raise ValueError(
                        f"{name} in rows {chunk[0]} to {chunk[-1]}: {error}"
                    ) from error

    def names(self, row: int) -> str:
        """Return the inputs of a row, such as "text and image"."""
        return " and ".join(np.array(INPUTS)[self.present[:, row]]) or "none"


class Ranker(ImageGraph):
    """The ONNX graph of a ranking head with its backbone; ``labels`` name the C scores of an
    image."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, GRAPH)
        labels = directory / LABELS
        self.labels: list[str] = typed(list[str], read_json(labels).get("labels"), str(labels))


class RankingPredictor:
    """``predict`` of a registered ranking head."""

    def __init__(self, ranker: Ranker, limits: Limits | None = None) -> None:
        self.ranker, self.limits, self.columns = ranker, limits or Limits(), ranker.inputs

    def predict(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return a column per label: a score of each row's image, higher for more of it; not a
        probability."""
        rows = Rows.read_single(model_input, self.columns, self.limits, self.ranker.feature_dim)
        scores = np.zeros((rows.count, len(self.ranker.labels)))
        for numbers, found in rows.encode(
            {"image": self.ranker.encode_images, "features": self.ranker.encode_inputs}
        ):
            scores[list(numbers)] = found
        return pd.DataFrame(scores, columns=self.ranker.labels, index=model_input.index)

    def example(self) -> pd.DataFrame:
        """Return two images of one color, or two arrays of features."""
        if "image" in self.columns:
            return pd.DataFrame({"image": 2 * [gray_image()]})
        return pd.DataFrame(
            {"features": pd.Series(2 * [np.zeros((1, self.ranker.feature_dim or 1)).tolist()])}
        )


class PairPredictor:
    """``predict`` of a registered model that has no vector for an image: rows are pairs.

    To rank images for a sentence, repeat the sentence in one row per image; to rank sentences for
    an image, repeat the image. Equal images, and equal sentences beside the same images, are
    encoded once.
    """

    def __init__(self, scorer: PairScorer, limits: Limits | None = None) -> None:
        self.scorer, self.limits, self.columns = scorer, limits or Limits(), scorer.inputs

    def predict(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the column ``score`` of each row's sentence and image: R_w + R_s, neither
        probability nor cosine."""
        self.limits.check_rows(len(model_input))
        images = [name for name in self.columns if name != "text"]
        rows = Rows.read(model_input, [f"text with {name}" for name in images])
        text, *others = rows.present
        wrong = np.flatnonzero(~text | (np.sum(others, axis=0) != 1))
        if len(wrong):
            expected = (
                f"text and {' or '.join(images)}: this model scores pairs of a sentence and an "
                "image"
            )
            raise ValueError(f"row {wrong[0]} has {rows.names(wrong[0])}, expected {expected}")
        rows.check_accepted(self.columns)
        rows = rows.within(self.limits, self.scorer.feature_dim, repeated_images=False)
        self._check_levels(rows.values["features"])
        scores = np.zeros(rows.count)
        texts = rows.values["text"]
        for of_image, cells in self._encoded_images(rows):
            for image, sentences in _blocks(of_image, texts):
                captions = self.scorer.encode_captions(sentences)
                row_of = {sentence: row for row, sentence in enumerate(sentences)}
                for number, members in image:
                    chosen = [row_of[texts[row]] for row in members]
                    pairs = captions[0][chosen], captions[1][chosen]
                    scores[members] = self.scorer.score(cells[number : number + 1], pairs)[0]
        return pd.DataFrame({"score": scores}, index=model_input.index)

    def example(self) -> pd.DataFrame:
        """Return two sentences beside an image of one color, or beside features of zeros."""
        frame = pd.DataFrame(
            {"text": ["a dog runs on the grass", "two red circles above a square"]}
        )
        if "image" in self.columns:
            return frame.assign(image=gray_image())
        regions = np.zeros((self.scorer.levels, self.scorer.feature_dim or 1)).tolist()
        return frame.assign(features=pd.Series([regions, regions]))

    def _encoded_images(self, rows: Rows) -> Iterator[tuple[list[list[int]], Array]]:
        """Yield the rows of each of some images, and the images' cells."""
        groups: dict[bytes, list[int]] = {}
        for row, image in rows.values["image"].items():
            groups.setdefault(image, []).append(row)
        for chunk in chunks(list(groups.values()), IMAGES):
            yield (
                list(chunk),
                self._encode("image", chunk, [rows.values["image"][group[0]] for group in chunk]),
            )
        # Padding would shift the cells of all levels but the first: encode images of equally many
        # cells together.
        sizes: dict[int, list[list[int]]] = {}
        for row, features in rows.values["features"].items():
            sizes.setdefault(len(features), []).append([row])
        for equal in sizes.values():
            for chunk in chunks(equal, IMAGES):
                values = [rows.values["features"][row] for (row,) in chunk]
                yield list(chunk), self._encode("features", chunk, values)

    def _check_levels(self, features: Mapping[int, Any]) -> None:
        levels = self.scorer.levels
        for row, regions in features.items():
            if len(regions) % levels:
                raise ValueError(
                    f"row {row} has features of {len(regions)} cells, expected equally many "
                    f"cells of {levels} levels"
                )

    def _encode(self, name: str, groups: Sequence[list[int]], values: Sequence[Any]) -> Array:
        encode = self.scorer.encode_images if name == "image" else self.scorer.encode_inputs
        try:
            return encode(values)
        except ValueError as error:  # such as a truncated image
            first = ", ".join(str(group[0]) for group in groups)
            raise ValueError(f"{name} in rows {first}: {error}") from error


def _blocks(
    groups: Sequence[Sequence[int]], texts: Mapping[int, str]
) -> Iterator[tuple[list[tuple[int, list[int]]], list[str]]]:
    """Yield some of the sentences of ``groups``, and for each group its number and its rows with
    these sentences."""
    different = list(dict.fromkeys(texts[row] for group in groups for row in group))
    for block in chunks(different, SENTENCES):
        chosen = set(block)
        members = [
            (number, [row for row in group if texts[row] in chosen])
            for number, group in enumerate(groups)
        ]
        yield [(number, rows) for number, rows in members if rows], list(block)


class Predictor(Protocol):
    """A model with ``predict``; ``columns`` are the accepted ones, of
    ``bifocal.onnx.encoders.INPUTS``."""

    columns: tuple[str, ...]

    def predict(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return one row for each row of the input; ``params`` is unused, and part of MLflow's
        interface."""

    def example(self) -> pd.DataFrame:
        """Return an input of two rows."""


class EmbeddingPredictor:
    """``predict`` of a registered model with one vector per sentence and per image."""

    def __init__(self, embedder: Embedder, limits: Limits | None = None) -> None:
        self.embedder, self.limits, self.columns = embedder, limits or Limits(), embedder.inputs

    def predict(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the column ``embedding``, an array (d,) float32 of unit norm for each row."""
        rows = Rows.read_single(model_input, self.columns, self.limits, self.embedder.feature_dim)
        embeddings = np.empty(rows.count, dtype=object)
        embedder = self.embedder
        for numbers, found in rows.encode(
            {
                "text": embedder.embed_sentences,
                "image": embedder.embed_images,
                "features": embedder.encode_inputs,
            }
        ):
            # Arrays, not lists of floats: Spark converts a list of 1,024 numbers in 0.1 ms.
            for row, embedding in zip(numbers, found, strict=True):
                embeddings[row] = embedding
        return pd.DataFrame({"embedding": embeddings}, index=model_input.index)

    def example(self) -> pd.DataFrame:
        """Return two sentences."""
        return pd.DataFrame({"text": ["a dog runs on the grass", "two red circles above a square"]})


def open_model(directory: Path, limits: Limits | None = None) -> Predictor:
    """Return an exported model: it returns embeddings, scores of pairs, or a ranking head's
    scores."""
    if (directory / GRAPH).is_file():
        return RankingPredictor(Ranker(directory), limits)
    if scores_pairs(directory):
        return PairPredictor(PairScorer(directory), limits)
    return EmbeddingPredictor(Embedder(directory), limits)


def _load_pyfunc(data_path: str) -> Predictor:
    """Load a model with the limits of this process."""
    return open_model(Path(data_path), Limits.of_process())
