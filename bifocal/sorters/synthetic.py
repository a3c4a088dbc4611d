"""Synthetic score vectors on which sorters are trained and measured, thesis 5.3.1."""

import torch
from torch import Generator, Tensor

DISTRIBUTIONS = ("uniform", "normal", "even", "mixture")


def synthetic_scores(count: int, length: int, generator: Generator) -> Tensor:
    """``count`` vectors, each of one of the four distributions of thesis 5.3.1 with equal chance.

    Uniform over [-1, 1]; normal with mean 0 and deviation 1; evenly spaced numbers in shuffled order over a
    sub-range of [-1, 1] with uniformly drawn ends; a mixture, in which every score comes from one of those
    three, in proportions that are drawn uniformly for each vector.

    Args:
        generator: of all random numbers, on the CPU; the same state gives the same vectors.

    Shape:
        -> (count, length) float32.
    """
    uniform = torch.rand(count, length, generator=generator) * 2 - 1
    normal = torch.randn(count, length, generator=generator)
    even = _evenly_spaced(count, length, generator)
    # Gaps between sorted uniform numbers are uniform over the simplex.
    cuts = torch.rand(count, 2, generator=generator).sort(dim=1).values
    draw = torch.rand(count, length, generator=generator)
    mixture = torch.where(draw < cuts[:, :1], uniform, torch.where(draw < cuts[:, 1:], normal, even))
    choice = torch.randint(len(DISTRIBUTIONS), (count, 1), generator=generator)
    scores = mixture
    for index, distribution in enumerate((uniform, normal, even)):
        scores = torch.where(choice == index, distribution, scores)
    return scores


def _evenly_spaced(count: int, length: int, generator: Generator) -> Tensor:
    ends = torch.rand(count, 2, generator=generator) * 2 - 1
    place = torch.rand(count, length, generator=generator).argsort(dim=1)
    return torch.lerp(ends[:, :1], ends[:, 1:], place / max(length - 1, 1))
