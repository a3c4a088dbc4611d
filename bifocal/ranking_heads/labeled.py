"""Images with labels of one task, and how predictions of them are measured."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, RegionBatch
from bifocal.metrics import mean_average_precision, spearman

Measure = Literal["spearman", "average_precision"]


class LabelledImages:
    """The images of a dataset that have the labels of a task, with their features.

    Args:
        dataset: of the split that is wanted.
        features: a store that has every image with a label.
        task: of ``bifocal.datasets.tables.LABELS``.

    Raises:
        ValueError: no image has a label of the task; an image lacks one that others have, or its features.

    Attributes:
        labels: names of the C labels, in alphabetical order.
        values: (n, C) float32; NaN where the label is not to be measured.
        groups: names of the G groups of images that are judged together.
        group_of_image: (n,) int64, row in ``groups``.
    """

    def __init__(self, dataset: Dataset, features: FeatureStore, task: str) -> None:
        table = dataset.labels[dataset.labels["task"] == task]
        if table.empty:
            tasks = sorted(set(dataset.labels["task"]))
            raise ValueError(f"no image of this split has a label of the task {task!r}; there are {tasks or 'none'}")
        # A null is a label too: rows are counted before their values are looked at.
        counts = table.groupby("image_id")["label"].nunique()
        self.labels = sorted(set(table["label"]))
        lacking = counts[counts < len(self.labels)]
        if len(lacking):
            raise ValueError(
                f"{len(lacking)} images lack labels of {task!r} that others have, such as {lacking.index[0]!r}"
            )
        wide = table.pivot(index="image_id", columns="label", values="value")[self.labels]
        groups = table.groupby("image_id")["group"].first()
        self.image_ids = [str(image_id) for image_id in wide.index]
        self.values = torch.from_numpy(wide.to_numpy(dtype="float32", copy=True))
        self.groups = sorted(set(groups))
        row = {group: number for number, group in enumerate(self.groups)}
        self.group_of_image = torch.tensor([row[group] for group in groups])
        self.features = features
        self._rows = features.rows(self.image_ids)

    def __len__(self) -> int:
        """n, the number of images."""
        return len(self.image_ids)

    def batch(self, images: Tensor) -> RegionBatch:
        """Features of the images in these rows."""
        return self.features.gather(self._rows[images.numpy()])

    def targets(self, images: Tensor, kind: Measure) -> Tensor:
        """What a loss takes as its matches: one row a label, (C, len(images)), graded or bool.

        What is not measured is present, if hard to see, and is learnt as such.
        """
        values = self.values[images].T
        return values if kind == "spearman" else values.nan_to_num(1.0) > 0.5

    def per_group(self, values: Tensor) -> Tensor:
        """The mean over the images of each group: (n, C) -> (G, C)."""
        sums = torch.zeros(len(self.groups), values.shape[1], dtype=torch.float64)
        sums.index_add_(0, self.group_of_image, values.double())
        return sums / self.group_of_image.bincount().unsqueeze(1)


class GroupPredictions(NamedTuple):
    """Predictions and truth of every group, (G, C) float64; the truth is NaN where it is not measured."""

    scores: Tensor
    truth: Tensor


def judge(samples: LabelledImages, scores: Tensor) -> GroupPredictions:
    """Average the scores (n, C) of the images of every group (frames of a video, thesis 5.5.1)."""
    return GroupPredictions(samples.per_group(scores), samples.per_group(samples.values))


def measure(judged: GroupPredictions, kind: Measure) -> float:
    """The mean over the labels of Spearman's correlation, or mean average precision.

    Raises:
        ValueError: average precision of labels that are graded.
    """
    scores, truth = judged.scores.T, judged.truth.T
    known = ~truth.isnan()
    if kind == "spearman":
        values = [spearman(row[rows], wanted[rows]) for row, wanted, rows in zip(scores, truth, known, strict=True)]
        return sum(values) / len(values)
    graded = known & (truth != 0) & (truth != 1)
    if graded.any():
        raise ValueError(
            f"average_precision needs labels that are 0 or 1, got {truth[graded][0].item():g}: use spearman"
        )
    return mean_average_precision(scores, truth == 1, known)
