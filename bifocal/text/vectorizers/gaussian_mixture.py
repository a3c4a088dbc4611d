"""Mixtures of Gaussians, or of Gaussians and Laplacians, and their Fisher vectors.

Klein et al., "Associating neural word embeddings with deep image representations using Fisher vectors", CVPR 2015;
Perronnin, Sanchez, Mensink, "Improving the Fisher kernel", ECCV 2010.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from bifocal.progress import track

Array = NDArray[np.float64]


@dataclass
class Mixture:
    """K centres in D independent dimensions, each dimension of each centre Gaussian or Laplacian.

    Attributes:
        weights: (K,), their sum 1.
        centres: (K, D), means or medians.
        scales: (K, D), standard deviations, or mean absolute deviations.
        gaussian: (K, D) bool, False where Laplacian.
    """

    weights: Array
    centres: Array
    scales: Array
    gaussian: NDArray[np.bool_]

    def log_joint(self, x: Array) -> Array:
        """ln of weight times density: (N, D) -> (N, K)."""
        constant = np.where(self.gaussian, -0.5 * np.log(2 * np.pi), -np.log(2)) - np.log(self.scales)
        columns = []
        for weight, centre, scale, gaussian, term in zip(
            self.weights, self.centres, self.scales, self.gaussian, constant, strict=True
        ):
            z = np.abs(x - centre) / scale
            columns.append(np.log(weight) + term.sum() - np.where(gaussian, 0.5 * z * z, z).sum(axis=1))
        return np.stack(columns, axis=1)

    def responsibilities(self, x: Array) -> Array:
        """Probability of each centre given x: (N, D) -> (N, K)."""
        joint = self.log_joint(x)
        shares: Array = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        return shares

    def fisher_terms(self, x: Array) -> Array:
        """Each word's part of the Fisher vector: (N, D) -> (N, 2 K D).

        The derivative of ln p(x) with respect to every centre, then every scale, times the inverse root of its Fisher
        information, in the approximation that centres do not overlap.
        """
        first, second = [], []
        for k, share in enumerate(self.responsibilities(x).T):
            z = (x - self.centres[k]) / self.scales[k]
            gaussian, root = self.gaussian[k], share[:, None] / np.sqrt(self.weights[k])
            first.append(root * np.where(gaussian, z, np.sign(z)))
            second.append(root * np.where(gaussian, (z * z - 1) / np.sqrt(2), np.abs(z) - 1))
        return np.concatenate([*first, *second], axis=1)


def fit_mixture(
    x: Array, counts: Array, centres: int, laplacian: bool, seed: int, iterations: int, floor: float = 1e-3
) -> tuple[Mixture, list[float]]:
    """Fit by EM from k-means.

    Args:
        x: (N, D) different points. counts: (N,), how often each stands for.
        centres: K. laplacian: a dimension of a centre may be Laplacian, where that is the likelier.
        iterations: of EM. floor: least scale, in units of the data's deviation.

    Returns:
        the mixture, and the mean ln p(x) before each iteration.
    """
    if len(x) < centres:
        raise ValueError(f"{len(x)} different words for {centres} centres: lower centres, or give more text")
    start = KMeans(centres, random_state=seed, n_init=1).fit(x, sample_weight=counts)
    share = np.eye(centres)[start.labels_]
    order = np.argsort(x, axis=0, kind="stable") if laplacian else None
    least = floor * x.std(axis=0)
    mixture, history = _maximize(x, counts, share, order, least), []
    for _ in track(range(iterations), "fit mixture"):
        joint = mixture.log_joint(x)
        total = logsumexp(joint, axis=1, keepdims=True)
        history.append(float(counts @ total[:, 0] / counts.sum()))
        mixture = _maximize(x, counts, np.exp(joint - total), order, least)
    return mixture, history


def _maximize(x: Array, counts: Array, share: Array, order: NDArray[np.int64] | None, least: Array) -> Mixture:
    mass = share * counts[:, None]
    # A centre that has lost all its points keeps a trace of every point: it stays finite.
    mass = mass + 1e-10 * counts[:, None]
    totals = mass.sum(axis=0)
    means = mass.T @ x / totals[:, None]
    deviations = np.sqrt(np.maximum(mass.T @ (x * x) / totals[:, None] - means**2, least**2))
    mixture = Mixture(totals / totals.sum(), means, deviations, np.ones(means.shape, bool))
    if order is None:
        return mixture
    for k in range(len(totals)):
        medians = _weighted_median(x, mass[:, k], order)
        spread = np.maximum(mass[:, k] @ np.abs(x - medians) / totals[k], least)
        # Mean log-likelihoods at the maximum: -ln(s sqrt(2 pi e)) of a Gaussian, -ln(2 e s) of a Laplacian.
        laplacian = np.log(2 * spread) + 1 < np.log(deviations[k]) + 0.5 * np.log(2 * np.pi) + 0.5
        mixture.gaussian[k] = ~laplacian
        mixture.centres[k] = np.where(laplacian, medians, means[k])
        mixture.scales[k] = np.where(laplacian, spread, deviations[k])
    return mixture


def _weighted_median(x: Array, mass: Array, order: NDArray[np.int64]) -> Array:
    cumulated = np.cumsum(mass[order], axis=0)
    middle = (cumulated < cumulated[-1] / 2).sum(axis=0)
    columns = np.arange(x.shape[1])
    median: Array = x[order[middle, columns], columns]
    return median
