"""Features of labeled images, and the metrics of their predictions."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, RegionBatch
from bifocal.metrics import mean_average_precision, spearman

MetricName = Literal["spearman", "average_precision"]


class LabeledFeatures:
    """Features of the images in one split that have labels for one task.

    ``values`` (n, C) is NaN where a label is excluded from the metric. ``groups`` names the groups
    of images whose predictions are averaged; ``group_of_image`` (n,) has their index.
    """

    def __init__(self, dataset: Dataset, features: FeatureStore, task: str) -> None:
        table = dataset.labels[dataset.labels["task"] == task]
        if table.empty:
            tasks = sorted(set(dataset.labels["task"]))
            raise ValueError(
                f"no image of this split has a label of the task {task!r}; there are "
                f"{tasks or 'none'}"
            )
        # A null value is a label too: count the rows before looking at values.
        counts = table.groupby("image_id")["label"].nunique()
        self.labels = sorted(set(table["label"]))
        incomplete = counts[counts < len(self.labels)]
        if len(incomplete):
            raise ValueError(
                f"{len(incomplete)} images lack labels of {task!r} that others have, such as "
                f"{incomplete.index[0]!r}"
            )
        wide = table.pivot(index="image_id", columns="label", values="value")[self.labels]
        groups = table.groupby("image_id")["group"].first()
        self.image_ids = [str(image_id) for image_id in wide.index]
        self.values = torch.from_numpy(wide.to_numpy(dtype="float32", copy=True))
        self.groups = sorted(set(groups))
        index = {group: number for number, group in enumerate(self.groups)}
        self.group_of_image = torch.tensor([index[group] for group in groups])
        self.features = features
        self._rows = features.rows(self.image_ids)

    def __len__(self) -> int:
        return len(self.image_ids)

    def batch(self, images: Tensor) -> RegionBatch:
        """Return the features of the images with these indices."""
        return self.features.gather(self._rows[images.numpy()])

    def targets(self, images: Tensor, metric: MetricName) -> Tensor:
        """Return the matches (C, n) for a loss: graded for Spearman, else bool, in which NaN
        ("difficult") is True."""
        values = self.values[images].T
        return values if metric == "spearman" else values.nan_to_num(1.0) > 0.5

    def group_means(self, values: Tensor) -> Tensor:
        """Average over the images of each group: (n, C) -> (G, C)."""
        sums = torch.zeros(len(self.groups), values.shape[1], dtype=torch.float64)
        sums.index_add_(0, self.group_of_image, values.double())
        return sums / self.group_of_image.bincount().unsqueeze(1)


class GroupPredictions(NamedTuple):
    """Predicted scores and ground truth of each group, (G, C) float64; the truth is NaN where it is
    excluded."""

    scores: Tensor
    truth: Tensor


def pool_by_group(samples: LabeledFeatures, scores: Tensor) -> GroupPredictions:
    """Average the scores (n, C) over the images of each group, such as the frames of a video
    (thesis 5.5.1)."""
    return GroupPredictions(samples.group_means(scores), samples.group_means(samples.values))


def score(predictions: GroupPredictions, metric: MetricName) -> float:
    """Mean over the labels of Spearman's rank correlation, or mean average precision."""
    scores, truth = predictions.scores.T, predictions.truth.T
    known = ~truth.isnan()
    if metric == "spearman":
        values = [
            spearman(row[mask], target[mask])
            for row, target, mask in zip(scores, truth, known, strict=True)
        ]
        return sum(values) / len(values)
    graded = known & (truth != 0) & (truth != 1)
    if graded.any():
        raise ValueError(
            f"average_precision needs labels that are 0 or 1, got {truth[graded][0].item():g}: "
            "use spearman"
        )
    return mean_average_precision(scores, truth == 1, known)
