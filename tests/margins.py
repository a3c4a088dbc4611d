"""Limits of measured shares that hold on every machine: rounding differs between processors, and a
trained model with it."""

from scipy.stats import binom


def beyond_chance(count: int, chance: float) -> float:
    """Share of hits in ``count`` draws that guessing exceeds once in a thousand times."""
    return float(binom.isf(1e-3, count, chance)) / count


def margin(count: int, share: float = 0.5) -> float:
    """Four standard errors of a share that ``count`` draws measure."""
    return 4 * float(binom.std(count, share)) / count
