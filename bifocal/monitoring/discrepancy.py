"""Maximum mean discrepancy of two samples of vectors, with a permutation test. Needs no torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag

from bifocal.monitoring.units import Labels, averaging

Array = NDArray[Any]
BATCH = 100
"""Permutations that one matrix product evaluates."""
EXCEEDANCES = 10
"""Permutations as extreme as the samples after which the test ends: their p-value is large."""
TOLERANCE = 1e-12
"""Difference of two statistics that rounding may cause."""


@dataclass(frozen=True)
class Discrepancy:
    """Difference of two distributions, estimated from samples.

    Attributes:
        squared: unbiased estimate of the squared maximum mean discrepancy; it may be negative.
        p_value: probability of an estimate at least as large if both distributions are the same.
    """

    squared: float
    p_value: float


def discrepancy_test(
    reference: Array,
    sample: Array,
    permutations: int = 999,
    seed: int = 0,
    units: tuple[Labels, Labels] | None = None,
) -> Discrepancy:
    """Estimate the squared maximum mean discrepancy of two samples, and test whether it is 0.

    Gretton et al., "A kernel two-sample test", JMLR 2012: the estimate is the MMD_u^2 of lemma 6, eq. (3), with a
    Gaussian kernel whose width is the median distance in both samples together (section 8). The test permutes the
    samples; it ends early when its p-value is certain to be large (Besag and Clifford, "Sequential Monte Carlo
    p-values", Biometrika 1991), and its level is exact for any number of vectors.

    Vectors of one unit, such as an album, may depend on each other. The test then permutes units: the kernel of two
    units is the mean over their pairs of vectors, and pairs within a unit do not count. A unit has at most as many
    vectors as the median unit of the other sample, so that units of both samples vary alike.

    Args:
        reference: (m, D).
        sample: (n, D).
        permutations: most permutations; the smallest p-value is 1 / (permutations + 1).
        seed: of the permutations.
        units: number of each vector's unit, (m,) and (n,); by default, each vector is a unit.

    Raises:
        ValueError: a sample has fewer than two vectors or units, or the dimensions differ.

    Example:
        >>> random = np.random.default_rng(0)
        >>> result = discrepancy_test(random.normal(size=(50, 2)), random.normal(2.0, size=(50, 2)))
        >>> result.p_value
        0.001
    """
    if min(len(reference), len(sample)) < 2 or reference.shape[1:] != sample.shape[1:]:
        raise ValueError(f"samples {reference.shape} and {sample.shape}: each needs two vectors of one dimension")
    kernel = gaussian_kernel(np.concatenate([reference, sample]))
    count = len(reference)
    if units is not None:
        before, after = (np.unique(labels, return_inverse=True)[1] for labels in units)
        count = int(before.max()) + 1
        if min(count, int(after.max()) + 1) < 2:
            raise ValueError("a sample has one unit only: each needs two")
        largest = max(1, int(min(np.median(np.bincount(labels)) for labels in (before, after))))
        average = block_diag([averaging(before, largest), averaging(after, largest)], format="csr")
        kernel = average @ kernel @ average.T
    # A constant has no effect on the estimate: without it, the sums are small, and so are their rounding errors.
    np.fill_diagonal(kernel, 0.0)
    kernel -= kernel.sum() / (len(kernel) * (len(kernel) - 1))
    np.fill_diagonal(kernel, 0.0)
    members = np.zeros(len(kernel))
    members[count:] = 1.0
    observed = float(_estimates(kernel, members[:, None])[0])
    p_value = _sequential_p_value(kernel, members, observed, permutations, np.random.default_rng(seed))
    return Discrepancy(observed, p_value)


def gaussian_kernel(vectors: Array) -> NDArray[np.float64]:
    """Return exp(-d^2 / (2 w^2)) of the distances d of vectors (N, D); w is their median, or the mean if that is 0."""
    given = np.asarray(vectors, dtype=np.float64)
    norms = (given**2).sum(axis=1)
    squares: NDArray[np.float64] = np.maximum(norms[:, None] + norms[None, :] - 2 * given @ given.T, 0.0)
    # All entries but the diagonal: between two of its entries are as many others as there are vectors.
    distances = squares.ravel()[1:].reshape(len(squares) - 1, -1)[:, :-1]
    width = float(np.median(distances)) or float(np.sqrt(distances).mean()) ** 2 or 1.0
    kernel: NDArray[np.float64] = np.exp(squares / (-2 * width))
    return kernel


def _estimates(kernel: Array, members: Array) -> Array:
    """Return MMD_u^2 of P divisions: ``members`` (N, P) is 1 for the second sample; the kernel's diagonal is 0."""
    second = members.sum(axis=0)
    first = len(kernel) - second
    within = (members * (kernel @ members)).sum(axis=0)
    touching = kernel.sum(axis=0) @ members
    between = touching - within
    rest = kernel.sum() - 2 * touching + within
    estimates: Array = rest / (first * (first - 1)) + within / (second * (second - 1)) - 2 * between / (first * second)
    return estimates


def _sequential_p_value(
    kernel: Array, members: Array, observed: float, permutations: int, random: np.random.Generator
) -> float:
    exceeded = done = 0
    while done < permutations:
        batch = random.permuted(np.tile(members, (min(BATCH, permutations - done), 1)), axis=1).T
        counts = exceeded + np.cumsum(_estimates(kernel, batch) >= observed - TOLERANCE)
        if counts[-1] >= EXCEEDANCES:
            return EXCEEDANCES / (done + 1 + int(np.argmax(counts == EXCEEDANCES)))
        exceeded, done = int(counts[-1]), done + len(counts)
    return (exceeded + 1) / (permutations + 1)


def unusual(reference: Array, sample: Array) -> NDArray[np.float64]:
    """Return the witness function (n,) of Gretton et al., section 2.3: the difference of mean kernels, large where the
    sample has many vectors and the reference few.
    """
    kernel = gaussian_kernel(np.concatenate([reference, sample]))[len(reference) :]
    others = (kernel[:, len(reference) :].sum(axis=1) - 1) / max(len(sample) - 1, 1)
    found: NDArray[np.float64] = others - kernel[:, : len(reference)].mean(axis=1)
    return found
