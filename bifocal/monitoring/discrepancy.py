"""Maximum mean discrepancy of two samples of vectors, with a permutation test. Needs no torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag
from scipy.stats import permutation_test

from bifocal.monitoring.albums import Labels, averaging

Array = NDArray[Any]
BATCH, LARGE = 100, 0.1
"""Permutations that one matrix product evaluates; the test ends after them if the p-value is larger
than this one."""
DECIMALS = 12
"""Decimals of an estimate: rounding errors are below."""


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
    blocks: tuple[Labels, Labels] | None = None,
) -> Discrepancy:
    """Estimate the squared maximum mean discrepancy of two samples, and test whether it is 0.

    Gretton et al., "A kernel two-sample test", JMLR 2012: the estimate is the MMD_u^2 of lemma 6,
    eq. (3), with a Gaussian kernel whose width is the median distance in both samples together
    (section 8). The test permutes the samples, and its level holds for any number of vectors.

    Vectors of one block, such as an album, may depend on each other. The test then permutes blocks:
    the kernel of two blocks is the mean over their pairs of vectors, and pairs within a block do
    not count. A block has at most as many vectors as the median block of the other sample, so that
    blocks of both samples vary alike.

    Args:
        reference: (m, D).
        sample: (n, D).
        permutations: most permutations; the smallest p-value is 1 / (permutations + 1). Small
            samples have fewer, and the test takes all of them.
        seed: of the permutations.
        blocks: number of each vector's block, (m,) and (n,); by default, each vector is a block.

    Raises:
        ValueError: a sample has fewer than two vectors or blocks, or the dimensions differ.

    Example:
        >>> random = np.random.default_rng(0)
        >>> result = discrepancy_test(random.normal(size=(50, 2)), random.normal(2.0, size=(50, 2)))
        >>> result.p_value
        0.001
    """
    if min(len(reference), len(sample)) < 2 or reference.shape[1:] != sample.shape[1:]:
        raise ValueError(
            f"samples {reference.shape} and {sample.shape}: each needs two vectors of one dimension"
        )
    kernel = gaussian_kernel(np.concatenate([reference, sample]))
    count = len(reference)
    if blocks is not None:
        before, after = (np.unique(labels, return_inverse=True)[1] for labels in blocks)
        count = int(before.max()) + 1
        if min(count, int(after.max()) + 1) < 2:
            raise ValueError("a sample has one block only: each needs two")
        largest = max(1, int(min(np.median(np.bincount(labels)) for labels in (before, after))))
        average = block_diag([averaging(before, largest), averaging(after, largest)], format="csr")
        kernel = average @ kernel @ average.T
    # A constant has no effect on the estimate: without it, the sums are small, and so are their
    # rounding errors.
    np.fill_diagonal(kernel, 0.0)
    kernel -= kernel.sum() / (len(kernel) * (len(kernel) - 1))
    np.fill_diagonal(kernel, 0.0)

    def estimate(_: Array, second: Array, axis: int) -> Array:
        members = np.zeros((*second.shape[:-1], len(kernel)))
        np.put_along_axis(members, second, 1.0, axis)
        return _estimates(kernel, members, second.shape[-1]).round(DECIMALS)

    rows = np.arange(len(kernel))
    for resamples in (min(BATCH, permutations), permutations):
        result = permutation_test(
            (rows[:count], rows[count:]),
            estimate,
            n_resamples=resamples,
            batch=BATCH,
            alternative="greater",
            vectorized=True,
            rng=seed,
        )
        if result.pvalue > LARGE:
            break
    return Discrepancy(float(result.statistic), float(result.pvalue))


def gaussian_kernel(vectors: Array) -> NDArray[np.float64]:
    """Return exp(-d^2 / (2 w^2)) of the distances d of vectors (N, D); w is their median, or the
    mean if that is 0."""
    given = np.asarray(vectors, dtype=np.float64)
    norms = (given**2).sum(axis=1)
    squares: NDArray[np.float64] = np.maximum(
        norms[:, None] + norms[None, :] - 2 * given @ given.T, 0.0
    )
    # All entries but the diagonal: between two of its entries are as many others as there are
    # vectors.
    distances = squares.ravel()[1:].reshape(len(squares) - 1, -1)[:, :-1]
    width = float(np.median(distances)) or float(np.sqrt(distances).mean()) ** 2 or 1.0
    kernel: NDArray[np.float64] = np.exp(squares / (-2 * width))
    return kernel


def _estimates(kernel: Array, members: Array, second: int) -> Array:
    """Return MMD_u^2 of divisions: ``members`` (..., N) is 1 for the second sample; the kernel's
    diagonal is 0."""
    first = len(kernel) - second
    within = (members * (members @ kernel)).sum(axis=-1)
    touching = members @ kernel.sum(axis=0)
    rest = kernel.sum() - 2 * touching + within
    estimates: Array = (
        rest / (first * (first - 1))
        + within / (second * (second - 1))
        - 2 * (touching - within) / (first * second)
    )
    return estimates


def unusual(reference: Array, sample: Array) -> NDArray[np.float64]:
    """Return the witness function (n,) of Gretton et al., section 2.3: the difference of mean
    kernels, large where the sample has many vectors and the reference few.
    """
    kernel = gaussian_kernel(np.concatenate([reference, sample]))[len(reference) :]
    others = (kernel[:, len(reference) :].sum(axis=1) - 1) / max(len(sample) - 1, 1)
    found: NDArray[np.float64] = others - kernel[:, : len(reference)].mean(axis=1)
    return found
