"""How often does a year of promotions accept a model that is no better?

    python -m benchmarks run robustness.promotions

Simulated retrieval: images differ in difficulty, each model adds its own luck per image and
caption, and the recall sum (R@1, 5 and 10 of both directions, about 305) is compared by the rule of
pipelines/policies/promotion.yaml. In each of 100 years, 52 candidates are compared with one
champion on one test set. A promotion is false if the candidate equals the champion. The floor is
the rule of version 0.1: a percentile bootstrap at 2.5 % per look, no minimal gain.
"""

import torch
from torch import Tensor

from benchmarks.common import Report
from bifocal.metrics.bootstrap import bootstrap_means, subset_means, tail_and_subsets
from bifocal.promotion.looks import look_level

YEARS, LOOKS, RATE, MIN_GAIN, CAPTIONS = 100, 52, 0.05, 1.0, 5
THRESHOLDS = (0.7, -0.2, -0.6)
"""Least ability of a query that is answered at R@1, 5, 10."""
GAINS = {0.05: 9, 0.1: 18, 0.2: 36}
"""Gain in the recall sum, in percentage points, by shift of the abilities."""
BLOCK = 520


def hits(ability: Tensor, luck: float, shift: float, generator: torch.Generator) -> Tensor:
    """Return the recall sum of each image: (G, M) abilities -> (G, M), 0 to 600."""
    total = torch.zeros_like(ability)
    for weight, queries in ((100.0, 1), (100.0 / CAPTIONS, CAPTIONS)):
        for _ in range(queries):
            score = ability + luck * torch.randn(ability.shape, generator=generator) + shift
            total += weight * sum((score > threshold).double() for threshold in THRESHOLDS)
    return total


def gains(images: int, years: int, looks: int, shift: float, seed: int) -> Tensor:
    """Return the gain of each image and candidate: (images, years * looks)."""
    generator = torch.Generator().manual_seed(seed)
    ability = torch.randn(images, years, generator=generator, dtype=torch.float64)
    champion = hits(ability, 0.6, 0.0, generator).repeat_interleave(looks, dim=1)
    return hits(ability.repeat_interleave(looks, dim=1), 0.6, shift, generator) - champion


def accepted(gain: Tensor, alpha: float, min_gain: float) -> Tensor:
    """Return whether the bound of level ``alpha`` of each column is above ``min_gain``."""
    tail, subsets = tail_and_subsets(alpha)
    parts = [
        subset_means(part, torch.ones_like(part), subsets, seed=1)
        for part in gain.split(BLOCK, dim=1)
    ]
    return torch.cat([part.kthvalue(tail, dim=0).values > min_gain for part in parts])


def accepted_in_version_0_1(gain: Tensor) -> Tensor:
    """Return whether the lower end of the 95 % percentile interval is above 0."""
    parts = [
        bootstrap_means(part, torch.ones_like(part), 1000, seed=1)
        for part in gain.split(BLOCK, dim=1)
    ]
    return torch.cat([part.quantile(0.025, dim=0) > 0 for part in parts])


def main() -> None:
    """Measure the rate of false promotions and the power."""
    report = Report("robustness.promotions")
    level = look_level(RATE, LOOKS, [])
    for images in (250, 1000):
        equal = gains(images, YEARS, LOOKS, shift=0.0, seed=images)
        floor = accepted_in_version_0_1(equal).view(YEARS, LOOKS).any(dim=1).double().mean()
        for min_gain in (0.0, MIN_GAIN):
            rate = accepted(equal, level, min_gain).view(YEARS, LOOKS).any(dim=1).double().mean()
            name = f"{images} images, min_gain {min_gain:g}: years with a false promotion"
            report.add(
                name,
                100 * float(rate),
                "%",
                at_most=100 * RATE,
                reference=f"version 0.1: {100 * floor:.0f} %",
            )
    for images in (250, 500, 1000, 5000):
        for shift, gain in GAINS.items():
            better = gains(images, 1, 100, shift=shift, seed=7)
            found = accepted(better, level, MIN_GAIN).double().mean()
            name = f"{images} images: power at a true gain of {gain} points"
            report.add(name, 100 * float(found), "%")
    report.write()


if __name__ == "__main__":
    main()
