"""Labeled images on which an image encoder is pretrained as a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bifocal.datasets import Dataset


@dataclass(frozen=True)
class ClassificationImages:
    """Image files and their classes or labels."""

    paths: list[Path]  # N image files
    names: list[str]  # K classes or labels
    targets: NDArray[np.float32]  # (N, K) in [0, 1]; NaN where a label is unknown
    exclusive: bool  # each image has exactly one class


def labels_of(dataset: Dataset, task: str, names: Sequence[str] | None = None) -> ClassificationImages:
    """Return the images with labels of ``task``, all or ``names``; a label that an image lacks counts as absent."""
    rows = dataset.labels[dataset.labels["task"] == task]
    if rows.empty:
        known = ", ".join(sorted(dataset.labels["task"].unique())) or "no task"
        raise ValueError(f"no image of the split has labels of the task {task!r}; there are labels of {known}")
    classes = sorted(rows["label"].unique()) if names is None else list(names)
    column, image_ids = {name: k for k, name in enumerate(classes)}, sorted(rows["image_id"].unique())
    index = {image_id: n for n, image_id in enumerate(image_ids)}
    targets = np.zeros((len(image_ids), len(classes)), np.float32)
    for image_id, label, value in zip(rows["image_id"], rows["label"], rows["value"], strict=True):
        if label in column:
            targets[index[image_id], column[label]] = np.nan if value is None else value
    if not ((targets >= 0) & (targets <= 1) | np.isnan(targets)).all():
        raise ValueError(f"labels of the task {task!r} are not all in [0, 1]: a classifier predicts presence")
    paths = [dataset.image_path(image_id) for image_id in image_ids]
    return ClassificationImages(paths, classes, targets, exclusive=False)


def class_folders(root: Path, names: Sequence[str] | None = None) -> ClassificationImages:
    """Return the images of ``root/<class>/``, the layout of ImageNet; ``names`` selects classes."""
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    classes = [folder.name for folder in folders] if names is None else list(names)
    files = [(path, folder.name) for folder in folders if folder.name in classes for path in sorted(folder.iterdir())]
    if not files:
        raise ValueError(f"{root} has no folders of images: expected one folder per class, as in ImageNet")
    targets = np.eye(len(classes), dtype=np.float32)[[classes.index(name) for _, name in files]]
    return ClassificationImages([path for path, _ in files], classes, targets, exclusive=True)
