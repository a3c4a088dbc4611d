"""Which words occur where in an image: the targets of ``pretrain_on_phrases``."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bifocal.datasets import Dataset

MIRRORED_WORDS = {"left", "right"}
"""Words that are wrong in a mirrored image."""


class TargetVocabulary(NamedTuple):
    """Target words, each list in alphabetical order; without stop words, "left" and "right"."""

    cell: list[str]  # V words of phrases with boxes, predicted for each cell
    scene: list[str]  # S words of captions that are not in ``cell``, predicted for the whole image


def build_target_vocabulary(dataset: Dataset, min_count: int) -> TargetVocabulary:
    """Return the words that occur in at least ``min_count`` phrases with boxes, or captions, of
    ``dataset``."""
    located = dataset.phrases["phrase"][dataset.phrases["boxes"].map(len) > 0]
    cell = _frequent_words(located, min_count)
    if not cell:
        raise ValueError(
            f"no word occurs in {min_count} phrases with boxes (the training split has "
            f"{len(located)} such phrases): lower min_count, or load trained weights instead "
            "of training on phrases"
        )
    scene = set(_frequent_words(dataset.captions["text"], min_count)) - set(cell)
    return TargetVocabulary(cell, sorted(scene))


class WordTargets:
    """Targets of the images ``image_ids``; ``boxes`` has (n, 4) x0 y0 x1 y1 of each image, relative
    to its size."""

    def __init__(self, dataset: Dataset, words: TargetVocabulary, image_ids: Sequence[str]) -> None:
        selected = set(image_ids)
        images = dataset.images[dataset.images["image_id"].isin(selected)]
        sizes = dict(
            zip(
                images["image_id"], zip(images["width"], images["height"], strict=True), strict=True
            )
        )
        boxes: dict[str, list[NDArray[np.float64]]] = {image_id: [] for image_id in image_ids}
        labels: dict[str, list[NDArray[np.float32]]] = {image_id: [] for image_id in image_ids}
        rows = zip(
            *(dataset.phrases[column] for column in ("image_id", "phrase", "boxes")), strict=True
        )
        for image_id, phrase, phrase_boxes in rows:
            if image_id in selected:
                label = np.append(_indicator(words.cell, phrase), np.float32(1))
                for box in phrase_boxes:
                    boxes[image_id].append(
                        np.asarray(box, np.float64) / np.tile(sizes[image_id], 2)
                    )
                    labels[image_id].append(label)
        self.boxes = {image_id: np.array(rows).reshape(-1, 4) for image_id, rows in boxes.items()}
        self._labels = {
            image_id: np.array(rows, np.float32).reshape(-1, len(words.cell) + 1)
            for image_id, rows in labels.items()
        }
        self._scene = {image_id: np.zeros(len(words.scene), np.float32) for image_id in image_ids}
        for image_id, text in zip(
            dataset.captions["image_id"], dataset.captions["text"], strict=True
        ):
            if image_id in selected:
                np.maximum(
                    self._scene[image_id], _indicator(words.scene, text), out=self._scene[image_id]
                )

    def of_cells(
        self, image_id: str, boxes: NDArray[np.floating], rows: int, columns: int
    ) -> NDArray[np.float32]:
        """Return the targets (rows, columns, V + 1) of an image's cells; ``boxes`` are transformed
        like its pixels.

        A word is 1 in the cells whose center is in one of its boxes, and in the cell of the box's
        center; the last target is 1 for any box.
        """
        in_x = _covers(boxes[:, 0], boxes[:, 2], columns)
        in_y = _covers(boxes[:, 1], boxes[:, 3], rows)
        inside = (in_y[:, :, None] & in_x[:, None, :]).reshape(len(boxes), rows * columns)
        targets = inside.T.astype(np.float32) @ self._labels[image_id] > 0
        return targets.reshape(rows, columns, -1).astype(np.float32)

    def of_scene(self, image_id: str) -> NDArray[np.float32]:
        return self._scene[image_id]


def _words(text: str) -> set[str]:
    from sklearn.feature_extraction.text import (
        ENGLISH_STOP_WORDS,
    )  # imported here: scikit-learn takes seconds

    return set(re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text.lower())).difference(
        ENGLISH_STOP_WORDS, MIRRORED_WORDS
    )


def _frequent_words(texts: Iterable[str], min_count: int) -> list[str]:
    counts = Counter(word for text in texts for word in _words(text))
    return sorted(word for word, count in counts.items() if count >= min_count)


def _indicator(words: list[str], text: str) -> NDArray[np.float32]:
    return np.isin(words, list(_words(text))).astype(np.float32)


def _covers(low: NDArray[np.floating], high: NDArray[np.floating], cells: int) -> NDArray[np.bool_]:
    """Whether the intervals (n,) contain the center of each cell along one side, or are centered in
    it: (n, cells)."""
    centers = (np.arange(cells) + 0.5) / cells
    middle = np.clip(np.floor((low + high) / 2 * cells), 0, cells - 1)
    inside = (low[:, None] <= centers) & (centers < high[:, None])
    return np.asarray(inside | (middle[:, None] == np.arange(cells)))
