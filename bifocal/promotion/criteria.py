"""Criteria that an exported model must meet to replace another one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Criteria:
    """What a model must meet; metrics are in percent, gains and drops in percentage points.

    Attributes:
        recall_at: K of the recall sum, which adds R@K of both directions.
        min_images: required number of images to compare on.
        unseen_images: whether images count that the other model was neither trained nor evaluated on.
        min_gain: the recall sum must certainly gain more than this.
        false_promotion_rate: probability that any of ``looks`` models without such a gain is accepted.
        looks: planned comparisons on one test set.
        max_drops: largest drop of single metrics.
        floors: lowest value of single metrics, also without another model.
        confidence: one-sided confidence with which drops and floors are tested.
        seed: of the subsets of the images that give confidence bounds.
        max_near_duplicates: largest share of test images that look like a training image; they are left out.
        parity, backbone_parity: largest differences between the graphs and torch.
        max_latency_ratio: largest median time per input, relative to the other model.
        size_mb: largest size of the graphs.
    """

    recall_at: Sequence[int]
    min_images: int
    unseen_images: bool
    min_gain: float
    false_promotion_rate: float
    looks: int
    max_drops: Mapping[str, float]
    floors: Mapping[str, float]
    confidence: float
    seed: int
    max_near_duplicates: float
    parity: float
    backbone_parity: float
    max_latency_ratio: float
    size_mb: float

    @property
    def alpha(self) -> float:
        """Level at which drops and floors are tested."""
        return 1 - self.confidence
