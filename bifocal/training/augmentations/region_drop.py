"""Dropping of regions."""

from dataclasses import dataclass, replace

from torch import Generator

from bifocal.models.batch import Batch
from bifocal.training.augmentations.base import Augment, Augmentation, check_probability, drop
from bifocal.training.inputs import TrainingInputs


@dataclass(frozen=True)
class RegionDrop(Augmentation):
    """Hide each region of an image with a probability; at least one region remains.

    Chen et al., "Learning the best pooling strategy for visual semantic embedding", CVPR 2021, section 3.3, "size
    augmentation": 20 % of the regions are dropped.

    Args:
        probability: of each region, in (0, 1).
    """

    probability: float = 0.2

    def __post_init__(self) -> None:
        check_probability(self.probability)

    def prepare(self, inputs: TrainingInputs) -> Augment:
        if inputs.features.pixels or inputs.features.regions == 1:
            found = "pixels" if inputs.features.pixels else "one vector per image"
            raise ValueError(f"RegionDrop needs several regions per image, and the features are {found}: leave it out")
        return self._augment

    def _augment(self, batch: Batch, generator: Generator) -> Batch:
        mask = drop(batch.regions.mask, self.probability, generator)
        return replace(batch, regions=batch.regions._replace(mask=mask))
