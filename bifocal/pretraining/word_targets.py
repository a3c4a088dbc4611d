"""What words stand where: the targets that a backbone is trained on."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from bifocal.datasets import Dataset

# A mirrored image makes them wrong.
NOT_LEARNT: frozenset[str] = ENGLISH_STOP_WORDS | {"left", "right"}


class TargetVocabulary(NamedTuple):
    """The words that a backbone learns, each list sorted; stop words, "left" and "right" are left out.

    Attributes:
        cell: V words of phrases with boxes.
        scene: S words of captions that are not among them.
    """

    cell: list[str]
    scene: list[str]


def learnt_words(dataset: Dataset, min_count: int) -> TargetVocabulary:
    """Words that stand in at least ``min_count`` phrases, or captions, of ``dataset``.

    Raises:
        ValueError: no word stands in enough phrases with boxes.
    """
    located = dataset.phrases["phrase"][dataset.phrases["boxes"].map(len) > 0]
    cell = _frequent(located, min_count)
    if not cell:
        raise ValueError(
            f"no word stands in {min_count} phrases with boxes of the split train (it has {len(located)} phrases): "
            "a backbone cannot be trained here; give extract_features.weights, or lower pretraining.min_count"
        )
    return TargetVocabulary(cell, sorted(set(_frequent(dataset.captions["text"], min_count)) - set(cell)))


class WordTargets:
    """Which of ``words`` stand where in the images ``image_ids`` of ``dataset``.

    Attributes:
        boxes: of each image, (n, 4) x0 y0 x1 y1 relative to width and height, one row for each box of each phrase.
    """

    def __init__(self, dataset: Dataset, words: TargetVocabulary, image_ids: Sequence[str]) -> None:
        wanted = set(image_ids)
        images = dataset.images[dataset.images["image_id"].isin(wanted)]
        sizes = dict(zip(images["image_id"], zip(images["width"], images["height"], strict=True), strict=True))
        boxes: dict[str, list[NDArray[np.float64]]] = {image_id: [] for image_id in image_ids}
        labels: dict[str, list[NDArray[np.float32]]] = {image_id: [] for image_id in image_ids}
        rows = zip(*(dataset.phrases[column] for column in ("image_id", "phrase", "boxes")), strict=True)
        for image_id, phrase, found in rows:
            if image_id in wanted:
                label = np.append(_marks(words.cell, phrase), np.float32(1))
                for box in found:
                    boxes[image_id].append(np.asarray(box, np.float64) / np.tile(sizes[image_id], 2))
                    labels[image_id].append(label)
        self.boxes = {image_id: np.array(found).reshape(-1, 4) for image_id, found in boxes.items()}
        self._labels = {
            image_id: np.array(found, np.float32).reshape(-1, len(words.cell) + 1) for image_id, found in labels.items()
        }
        self._scene = {image_id: np.zeros(len(words.scene), np.float32) for image_id in image_ids}
        for image_id, text in zip(dataset.captions["image_id"], dataset.captions["text"], strict=True):
            if image_id in wanted:
                np.maximum(self._scene[image_id], _marks(words.scene, text), out=self._scene[image_id])

    def of_cells(self, image_id: str, boxes: NDArray[np.floating], rows: int, columns: int) -> NDArray[np.float32]:
        """Targets (rows, columns, V + 1) of the cells of an image: 1 for the words of each box that has the cell's
        centre, and of the box whose own centre lies in the cell; the last for any box at all.

        Args:
            boxes: those of the image, perhaps moved with its pixels.
        """
        in_x = _inside(boxes[:, 0], boxes[:, 2], columns)
        in_y = _inside(boxes[:, 1], boxes[:, 3], rows)
        inside = (in_y[:, :, None] & in_x[:, None, :]).reshape(len(boxes), rows * columns)
        targets = inside.T.astype(np.float32) @ self._labels[image_id] > 0
        return targets.reshape(rows, columns, -1).astype(np.float32)

    def of_scene(self, image_id: str) -> NDArray[np.float32]:
        """Targets (S,) of an image: 1 for the words of its captions."""
        return self._scene[image_id]


def _words_of(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text.lower())) - NOT_LEARNT


def _frequent(texts: Iterable[str], min_count: int) -> list[str]:
    counts = Counter(word for text in texts for word in _words_of(text))
    return sorted(word for word, count in counts.items() if count >= min_count)


def _marks(words: list[str], text: str) -> NDArray[np.float32]:
    return np.isin(words, list(_words_of(text))).astype(np.float32)


def _inside(low: NDArray[np.floating], high: NDArray[np.floating], cells: int) -> NDArray[np.bool_]:
    """Which of ``cells`` along one side lie in the interval (n,) by their centre, or hold its centre: (n, cells)."""
    centres = (np.arange(cells) + 0.5) / cells
    middle = np.clip(np.floor((low + high) / 2 * cells), 0, cells - 1)
    inside = (low[:, None] <= centres) & (centres < high[:, None])
    return np.asarray(inside | (middle[:, None] == np.arange(cells)))
