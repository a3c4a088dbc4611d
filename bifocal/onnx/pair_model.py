"""``predict`` of a registered model that scores pairs of a sentence and an image."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bifocal.onnx.encoders import Array, PairScorer
from bifocal.onnx.image_files import gray_image
from bifocal.onnx.limits import Limits, chunks
from bifocal.onnx.rows import Rows

IMAGES, SENTENCES = 16, 64
"""Different images, and sentences, that are encoded at once: they bound the memory of a request."""


class PairScorerModel:
    """``predict`` of a registered model that has no vector for an image: rows are pairs.

    To rank images for a sentence, repeat the sentence in one row per image; to rank sentences for an image, repeat the
    image. Equal images, and equal sentences beside the same images, are encoded once.
    """

    def __init__(self, scorer: PairScorer, limits: Limits | None = None) -> None:
        self.scorer, self.limits, self.columns = scorer, limits or Limits(), scorer.inputs

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the column ``score`` of each row's sentence and image: R_w + R_s, neither probability nor cosine."""
        self.limits.check_rows(len(model_input))
        images = [name for name in self.columns if name != "text"]
        rows = Rows.read(model_input, [f"text with {name}" for name in images])
        text, *others = rows.present
        wrong = np.flatnonzero(~text | (np.sum(others, axis=0) != 1))
        if len(wrong):
            expected = f"text and {' or '.join(images)}: this model scores pairs of a sentence and an image"
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
        frame = pd.DataFrame({"text": ["a dog runs on the grass", "two red circles above a square"]})
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
            yield list(chunk), self._encode("image", chunk, [rows.values["image"][group[0]] for group in chunk])
        # Padding would shift the cells of all levels but the first: encode images of equally many cells together.
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
                    f"row {row} has features of {len(regions)} cells, expected equally many cells of {levels} levels"
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
    """Yield some of the sentences of ``groups``, and for each group its number and its rows with these sentences."""
    different = list(dict.fromkeys(texts[row] for group in groups for row in group))
    for block in chunks(different, SENTENCES):
        chosen = set(block)
        members = [(number, [row for row in group if texts[row] in chosen]) for number, group in enumerate(groups)]
        yield [(number, rows) for number, rows in members if rows], list(block)
