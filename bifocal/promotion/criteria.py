"""Criteria that an exported model must meet to replace another one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Criteria:
    """What a model must meet; metrics are in percent, gains and drops in percentage points."""

    recall_at: Sequence[int]  # K of the recall sum, which adds R@K of both directions
    min_images: int  # required number of images to compare on
    unseen_images: bool  # whether images count that the other model was neither trained nor evaluated on
    min_gain: float  # the recall sum must certainly gain more than this
    false_promotion_rate: float  # probability that any of ``looks`` models without such a gain is accepted
    looks: int  # planned comparisons on one test set
    max_drops: Mapping[str, float]  # largest drop of single metrics
    floors: Mapping[str, float]  # lowest value of single metrics, also without another model
    confidence: float  # one-sided confidence with which drops and floors are tested
    seed: int  # seed of the subsets of images that give confidence bounds
    max_near_duplicates: float  # largest share of test images that look like a training image; they are left out
    parity: float  # largest difference of an embedding between the graphs and torch
    backbone_parity: float
    max_latency_ratio: float  # largest median time per input, relative to the other model
    size_mb: float  # largest size of the graphs

    @property
    def alpha(self) -> float:
        """Level at which drops and floors are tested."""
        return 1 - self.confidence
