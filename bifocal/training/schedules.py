"""Learning-rate schedules: ``schedule(epoch, epochs)`` is the factor of the learning rate after
``epoch`` epochs.

``epoch`` counts from 0 and is fractional within an epoch; ``epochs`` is the length of the training.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bifocal.registry import (
    CheckedByConstruction as _Checked,  # a public name would be a part of this module
)
from bifocal.registry import check_range

Schedule = Callable[[float, int], float]


@dataclass(frozen=True)
class Constant:
    """A constant learning rate.

    Example:
        >>> Constant()(3.5, 10)
        1.0
    """

    def __call__(self, epoch: float, epochs: int) -> float:
        return 1.0


@dataclass(frozen=True)
class MultiStep(_Checked):
    """Multiply the learning rate by ``gamma`` at each milestone.

    Args:
        milestones: in epochs; 1.5 is the middle of the second epoch.
        gamma: factor in (0, 1].

    Example:
        >>> schedule = MultiStep(milestones=[1.5, 4], gamma=0.5)
        >>> [schedule(epoch, 6) for epoch in (0, 1, 1.5, 4)]
        [1.0, 1.0, 0.5, 0.25]
    """

    milestones: Sequence[float] = ()
    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_range("(0, 1]", gamma=self.gamma)
        if any(milestone < 0 for milestone in self.milestones):
            raise ValueError(
                f"milestones are {list(self.milestones)}: expected epochs of 0 or more"
            )

    def __call__(self, epoch: float, epochs: int) -> float:
        return float(self.gamma ** sum(epoch >= milestone for milestone in self.milestones))


@dataclass(frozen=True)
class Step(_Checked):
    """Multiply the learning rate by ``gamma`` every ``step_size`` epochs.

    Args:
        step_size: epochs.
        gamma: factor in (0, 1].

    Example:
        >>> schedule = Step(step_size=2, gamma=0.5)
        >>> [schedule(epoch, 6) for epoch in range(6)]
        [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """

    step_size: float = 1
    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_range("(0, 1]", gamma=self.gamma)
        check_range("(0, inf)", step_size=self.step_size)

    def __call__(self, epoch: float, epochs: int) -> float:
        return float(self.gamma ** (epoch // self.step_size))


@dataclass(frozen=True)
class Cosine(_Checked):
    """Raise the learning rate linearly from 0 during the warm-up, then let it fall to 0 as half a
    cosine.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017, eq.
    (5), one cycle.

    Args:
        warmup: length of the warm-up as a fraction of the training, in [0, 1).

    Example:
        >>> schedule = Cosine(warmup=0.5)
        >>> [round(schedule(epoch, 4), 3) for epoch in range(5)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    warmup: float = 0.0

    def __post_init__(self) -> None:
        check_range("[0, 1)", warmup=self.warmup)

    def __call__(self, epoch: float, epochs: int) -> float:
        progress = epoch / epochs
        if progress < self.warmup:
            return progress / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))
