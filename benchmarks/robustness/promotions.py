"""How often does a year of promotions accept a model that is no better?

    python -m benchmarks run robustness.promotions

Simulated retrieval: images differ in difficulty, each model adds its own luck per image and
caption, and the recall sum (R@1, 5 and 10 of both directions, about 305) is compared by the rule of
pipelines/policies/promotion.yaml. In each of 100 years, 52 candidates are compared with one
champion on one test set. A promotion is false if the candidate equals the champion. The floor is
the rule of version 0.1: a percentile bootstrap at 2.5 % per look, no minimal gain.

A project has few test images, and accepts a measured gain if a loss of a margin is ruled out. Its
candidates take each other's place for a year: all are worse than the first model by the margin, or
each by two points than the champion of its week, or as good. A year is lost if its champion is ever
worse than the first model by more than the margin.
"""

import torch
from torch import Tensor

from benchmarks.common import Report
from bifocal.metrics.bootstrap import bootstrap_means, subset_means, tail_and_subsets
from bifocal.promotion.looks import look_level
from pipelines.commands.project import IMAGES, LOSS

YEARS, LOOKS, RATE, MIN_GAIN, CAPTIONS = 100, 52, 0.05, 1.0, 5
THRESHOLDS = (0.7, -0.2, -0.6)
"""Least ability of a query that is answered at R@1, 5, 10."""
GAINS = {0.05: 9, 0.1: 18, 0.2: 36}
"""Gain in the recall sum, in percentage points, by shift of the abilities."""
PER_POINT = 0.05 / 9
"""Shift of the abilities by point of the recall sum, see ``GAINS``."""
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


def project_years(
    images: int, margin: float, loss: float, *, of_first: bool
) -> tuple[float, float]:
    """Return the share of lost years, and the promotions of a year, if candidates are worse by
    ``loss`` points than the first model, or else than the champion."""
    generator, level = torch.Generator().manual_seed(images), look_level(RATE, LOOKS, [])
    ability = torch.randn(images, YEARS, generator=generator, dtype=torch.float64)
    champion = hits(ability, 0.6, 0.0, generator)
    lost, promotions = torch.zeros(2, YEARS, dtype=torch.float64)
    worst = lost.clone()
    for _ in range(LOOKS):
        candidate_lost = (torch.zeros_like(lost) if of_first else lost) + loss
        candidate = hits(ability - candidate_lost * PER_POINT, 0.6, 0.0, generator)
        gain = candidate - champion
        better = accepted(gain, level, -margin) & (gain.mean(dim=0) > 0)
        champion = torch.where(better, candidate, champion)
        lost = torch.where(better, candidate_lost, lost)
        worst, promotions = torch.maximum(worst, lost), promotions + better
    return float((worst >= margin).double().mean()), float(promotions.mean())


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
    for images in (33, 100):
        margin = LOSS * (IMAGES / images) ** 0.5
        for name, loss, of_first in (
            ("worse by the margin", margin, True),
            ("2 points worse than its champion", 2.0, False),
            ("as good", 0.0, False),
        ):
            share, promotions = project_years(images, margin, loss, of_first=of_first)
            report.add(
                f"{images} images, min_gain -{margin:.1f}: lost years, each candidate {name}",
                100 * share,
                "%",
                at_most=100 * RATE,
                reference=f"{promotions:.1f} promotions a year",
            )
    report.write()


if __name__ == "__main__":
    main()
