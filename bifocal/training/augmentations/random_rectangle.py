"""Random rectangles of maps."""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor

from bifocal.models.batch import Batch
from bifocal.training.augmentations.base import Augment, Augmentation
from bifocal.training.inputs import TrainingInputs


@dataclass(frozen=True)
class RandomRectangle(Augmentation):
    """Show only the cells in a rectangle of each image's map: of one size in a step, at a place drawn for each image.

    A random crop of the image, without computing the layers below the map again. A mirrored image beside it gets the
    same rectangle.

    Args:
        least: least side of the rectangle, as a share of the map's side, in (0, 1).
    """

    least: float = 0.66

    def __post_init__(self) -> None:
        if not 0 < self.least < 1:
            raise ValueError(f"least is {self.least}: expected a number between 0 and 1")

    def prepare(self, inputs: TrainingInputs) -> Augment:
        regions = 0 if inputs.features.pixels else inputs.features.regions
        for views in (1, 2):
            side = math.isqrt(regions // views)
            if side > 1 and views * side**2 == regions:
                return partial(self._augment, views, side)
        raise ValueError(
            f"RandomRectangle needs the cells of a square map, and the features have {regions} regions: leave it out"
        )

    def _augment(self, views: int, side: int, batch: Batch, generator: Generator) -> Batch:
        mask = batch.regions.mask
        least = math.ceil(self.least * side)
        inside = []
        for _ in range(2):
            length = int(torch.randint(least, side + 1, (), generator=generator))
            start = torch.randint(0, side - length + 1, (len(mask), 1), generator=generator)
            places = torch.arange(side)
            inside.append((places >= start) & (places < start + length))
        rectangle: Tensor = (inside[0][:, :, None] & inside[1][:, None]).flatten(1).repeat(1, views)
        return replace(batch, regions=batch.regions._replace(mask=mask & rectangle.to(mask.device)))
