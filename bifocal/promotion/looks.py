"""Repeated looks at one test set: alpha spending, and the sketch of a set of images that identifies
it.

A test set that many candidates are tested on is used up: of 52 candidates that are not better, each
tested at the level 2.5 %, at least one passes with probability 1 - 0.975^52 = 0.73 if the tests are
independent. Each look therefore spends an equal part of one level. The probability of a false
promotion on the test set is then at most this level, also for dependent looks (Bonferroni; Lan and
DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SKETCH_SIZE = 64
DIGITS = 12
MIN_OVERLAP = 1 / 3
"""Share of common images above which two test sets count as one: half of the images, if both are
equally large."""


@dataclass(frozen=True)
class Look:
    """One comparison of two models on a test set."""

    models: tuple[str, str]  # identities of the models
    level: float  # spent level
    images: tuple[str, ...]  # sketch of the test images


def look_level(level: float, planned: int, spent: Iterable[float]) -> float:
    """Return an equal share of ``level``, the probability of any false promotion; 0 if it is used
    up."""
    share = level / planned
    return share if sum(spent) + share <= level * (1 + 1e-9) else 0.0


def image_sketch(contents: Iterable[str]) -> tuple[str, ...]:
    """Return the smallest hashes in a set of images: a random sample (Broder, 1997)."""
    return tuple(sorted({content[:DIGITS] for content in contents})[:SKETCH_SIZE])


def overlap(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the estimated number of shared images over the number of all images, from two
    sketches."""
    smallest = sorted({*first, *second})[:SKETCH_SIZE]
    return (
        sum(content in first and content in second for content in smallest) / len(smallest)
        if smallest
        else 0.0
    )


def next_look(
    level: float,
    planned: int,
    models: tuple[str, str],
    images: tuple[str, ...],
    looks: Iterable[Look],
) -> Look:
    """Return the look of a comparison: the earlier one of the same models and images, or a new one
    with its level."""
    earlier = [look for look in looks if overlap(look.images, images) > MIN_OVERLAP]
    repeated = [look for look in earlier if (look.models, look.images) == (models, images)]
    if repeated:
        return repeated[0]
    return Look(models, look_level(level, planned, (look.level for look in earlier)), images)
