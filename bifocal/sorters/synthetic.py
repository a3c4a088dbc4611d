"""Synthetic score vectors to train and evaluate sorters, thesis 5.3.1."""

import torch
from torch import Generator, Tensor

DISTRIBUTIONS = ("uniform", "normal", "even", "mixture")


def synthetic_scores(count: int, length: int, generator: Generator) -> Tensor:
    """Draw vectors (count, length), each from one of the four distributions of thesis 5.3.1 with
    equal probability.

    Uniform over [-1, 1]; standard normal; evenly spaced in random order; a mixture of these in
    random proportions.
    """
    uniform = torch.rand(count, length, generator=generator) * 2 - 1
    normal = torch.randn(count, length, generator=generator)
    even = _evenly_spaced(count, length, generator)
    # Gaps between sorted uniform numbers are uniform over the simplex: the proportions of the
    # mixture.
    cuts = torch.rand(count, 2, generator=generator).sort(dim=1).values
    draw = torch.rand(count, length, generator=generator)
    mixture = torch.where(
        draw < cuts[:, :1], uniform, torch.where(draw < cuts[:, 1:], normal, even)
    )
    choice = torch.randint(len(DISTRIBUTIONS), (count, 1), generator=generator)
    scores = mixture
    for index, distribution in enumerate((uniform, normal, even)):
        scores = torch.where(choice == index, distribution, scores)
    return scores


def _evenly_spaced(count: int, length: int, generator: Generator) -> Tensor:
    ends = torch.rand(count, 2, generator=generator) * 2 - 1
    position = torch.rand(count, length, generator=generator).argsort(dim=1)
    return torch.lerp(ends[:, :1], ends[:, 1:], position / max(length - 1, 1))
