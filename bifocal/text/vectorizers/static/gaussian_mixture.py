"""Fit of mixtures of Gaussians and Laplacians: Klein et al., CVPR 2015."""

import numpy as np
import scipy  # its packages are imported when they are used
from numpy.typing import NDArray

from bifocal.onnx.text.fisher import Mixture
from bifocal.progress import track

Array = NDArray[np.float64]


def fit_mixture(
    x: Array, counts: Array, centers: int, laplacian: bool, seed: int, iterations: int, min_scale: float = 1e-3
) -> tuple[Mixture, list[float]]:
    """Fit K ``centers`` by EM from k-means to ``x`` (N, D) with ``counts`` (N,); also return each mean ln p(x)."""
    from sklearn.cluster import KMeans  # imported here: scikit-learn takes seconds

    if len(x) < centers:
        raise ValueError(f"{len(x)} different words for {centers} centers: decrease centers or add text")
    start = KMeans(centers, random_state=seed, n_init=1).fit(x, sample_weight=counts)
    probabilities = np.eye(centers)[start.labels_]
    order = np.argsort(x, axis=0, kind="stable") if laplacian else None
    lower_bound = min_scale * x.std(axis=0)
    mixture, history = _maximize(x, counts, probabilities, order, lower_bound), []
    for _ in track(range(iterations), "fit mixture"):
        joint = mixture.log_joint(x)
        total = scipy.special.logsumexp(joint, axis=1, keepdims=True)
        history.append(float(counts @ total[:, 0] / counts.sum()))
        mixture = _maximize(x, counts, np.exp(joint - total), order, lower_bound)
    return mixture, history


def _maximize(
    x: Array, counts: Array, probabilities: Array, order: NDArray[np.int64] | None, lower_bound: Array
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
        # Mean log-likelihood at the maximum: -ln(s sqrt(2 pi e)) for a Gaussian, -ln(2 e s) for a Laplacian.
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
