"""Mixtures of Gaussians and Laplacians, and their Fisher vectors: Klein et al., CVPR 2015."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MIN_SCALE = 1e-3
"""Smallest scale of a center, relative to the standard deviation of the data."""


@dataclass
class Mixture:
    """K centers in D independent dimensions; each dimension of each center is Gaussian or
    Laplacian."""

    weights: Array  # (K,), with sum 1
    centers: Array  # (K, D), means or medians
    scales: Array  # (K, D), standard deviations or mean absolute deviations
    gaussian: NDArray[np.bool_]  # (K, D) bool, False for Laplacian

    def log_joint(self, x: Array) -> Array:
        """Return ln(weight x density) of every center: (N, D) -> (N, K)."""
        constant = np.where(self.gaussian, -0.5 * np.log(2 * np.pi), -np.log(2)) - np.log(
            self.scales
        )
        columns = []
        for weight, center, scale, gaussian, term in zip(
            self.weights, self.centers, self.scales, self.gaussian, constant, strict=True
        ):
            z = np.abs(x - center) / scale
            columns.append(
                np.log(weight) + term.sum() - np.where(gaussian, 0.5 * z * z, z).sum(axis=1)
            )
        return np.stack(columns, axis=1)

    def responsibilities(self, x: Array) -> Array:
        """Return the probability of each center given x: (N, D) -> (N, K)."""
        joint = self.log_joint(x)
        likelihoods = np.exp(joint - joint.max(axis=1, keepdims=True))
        probabilities: Array = likelihoods / likelihoods.sum(axis=1, keepdims=True)
        return probabilities

    def fisher_terms(self, x: Array) -> Array:
        """Return the contribution of each word to the Fisher vector: (N, D) -> (N, 2 K D), centers,
        then scales.

        The Fisher information is approximated as if the centers did not overlap.
        """
        first, second = [], []
        for k, probability in enumerate(self.responsibilities(x).T):
            z = (x - self.centers[k]) / self.scales[k]
            gaussian, root = self.gaussian[k], probability[:, None] / np.sqrt(self.weights[k])
            first.append(root * np.where(gaussian, z, np.sign(z)))
            second.append(root * np.where(gaussian, (z * z - 1) / np.sqrt(2), np.abs(z) - 1))
        return np.concatenate([*first, *second], axis=1)


def fit_mixture(
    x: Array,
    counts: Array,
    centers: int,
    laplacian: bool,
    seed: int,
    iterations: int,
) -> tuple[Mixture, list[float]]:
    """Fit K ``centers`` by EM from k-means to ``x`` (N, D) with ``counts`` (N,); also return each
    mean ln p(x)."""
    # Exported models, which do not fit, contain none of these.
    from scipy.special import logsumexp
    from sklearn.cluster import KMeans

    from bifocal.progress import track

    if len(x) < centers:
        raise ValueError(
            f"{len(x)} different words for {centers} centers: decrease centers or add text"
        )
    start = KMeans(centers, random_state=seed, n_init=1).fit(x, sample_weight=counts)
    probabilities = np.eye(centers)[start.labels_]
    order = np.argsort(x, axis=0, kind="stable") if laplacian else None
    lower_bound = MIN_SCALE * x.std(axis=0)
    mixture, history = _maximize(x, counts, probabilities, order, lower_bound), []
    for _ in track(range(iterations), "fit mixture"):
        joint = mixture.log_joint(x)
        total = logsumexp(joint, axis=1, keepdims=True)
        history.append(float(counts @ total[:, 0] / counts.sum()))
        mixture = _maximize(x, counts, np.exp(joint - total), order, lower_bound)
    return mixture, history


def _maximize(
    x: Array,
    counts: Array,
    probabilities: Array,
    order: NDArray[np.int64] | None,
    lower_bound: Array,
) -> Mixture:
    """M step of EM; ``order`` sorts each column of x, or is None for Gaussians only."""
    # The small constant keeps a center finite that has lost all its points.
    mass = probabilities * counts[:, None] + 1e-10 * counts[:, None]
    totals = mass.sum(axis=0)
    means = mass.T @ x / totals[:, None]
    deviations = np.sqrt(np.maximum(mass.T @ (x * x) / totals[:, None] - means**2, lower_bound**2))
    mixture = Mixture(totals / totals.sum(), means, deviations, np.ones(means.shape, bool))
    if order is None:
        return mixture
    for k in range(len(totals)):
        medians = _weighted_median(x, mass[:, k], order)
        spread = np.maximum(mass[:, k] @ np.abs(x - medians) / totals[k], lower_bound)
        # Mean log-likelihood at the maximum: -ln(s sqrt(2 pi e)) for a Gaussian, -ln(2 e s) for a
        # Laplacian.
        laplacian = np.log(2 * spread) + 1 < np.log(deviations[k]) + 0.5 * np.log(2 * np.pi) + 0.5
        mixture.gaussian[k] = ~laplacian
        mixture.centers[k] = np.where(laplacian, medians, means[k])
        mixture.scales[k] = np.where(laplacian, spread, deviations[k])
    return mixture


def _weighted_median(x: Array, mass: Array, order: NDArray[np.int64]) -> Array:
    cumulated = np.cumsum(mass[order], axis=0)
    middle = (cumulated < cumulated[-1] / 2).sum(axis=0)
    columns = np.arange(x.shape[1])
    median: Array = x[order[middle, columns], columns]
    return median
