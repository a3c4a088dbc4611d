"""Mixtures: Fisher terms against numerical derivatives of the log-likelihood, and EM."""

import numpy as np
import pytest
from scipy.stats import laplace, norm
from sklearn.mixture import GaussianMixture

from bifocal.onnx.text.mixture import Mixture, fit_mixture

CENTERS, DIM = 3, 2


def far_mixture() -> Mixture:
    generator = np.random.default_rng(0)
    return Mixture(
        np.array([0.2, 0.3, 0.5]),
        3 * generator.normal(size=(CENTERS, DIM)),
        0.5 + generator.random((CENTERS, DIM)),
        generator.random((CENTERS, DIM)) < 0.5,
    )


def log_likelihood(mixture: Mixture, x: np.ndarray) -> float:
    """Return ln p(x) of one point, by SciPy's densities."""
    total = 0.0
    for k, weight in enumerate(mixture.weights):
        density = weight
        for d in range(DIM):
            distribution = norm if mixture.gaussian[k, d] else laplace
            density *= distribution.pdf(x[d], mixture.centers[k, d], mixture.scales[k, d])
        total += density
    return float(np.log(total))


def test_fisher_terms_are_numerical_derivatives() -> None:
    mixture, step = far_mixture(), 1e-6
    points = np.random.default_rng(1).normal(size=(5, DIM)) * 3
    for point, terms in zip(points, mixture.fisher_terms(points), strict=True):
        expected = []
        for parameters, information in ((mixture.centers, 1.0), (mixture.scales, 2.0)):
            for k in range(CENTERS):
                for d in range(DIM):
                    value = parameters[k, d]
                    parameters[k, d] = value + step
                    above = log_likelihood(mixture, point)
                    parameters[k, d] = value - step
                    below = log_likelihood(mixture, point)
                    parameters[k, d] = value
                    # Fisher information: 1/s^2 and 2/s^2 for mean and deviation of a Gaussian;
                    # 1/s^2 for a Laplacian.
                    factor = information if mixture.gaussian[k, d] else 1.0
                    root = np.sqrt(mixture.weights[k] * factor) / mixture.scales[k, d]
                    expected.append((above - below) / (2 * step) / root)
        np.testing.assert_allclose(terms, expected, atol=1e-6)


def test_responsibilities_follow_bayes_rule() -> None:
    mixture = far_mixture()
    x = np.random.default_rng(2).normal(size=(4, DIM))
    probabilities = mixture.responsibilities(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    for point, row in zip(x, np.exp(mixture.log_joint(x)).sum(axis=1), strict=True):
        assert np.log(row) == pytest.approx(log_likelihood(mixture, point))


@pytest.mark.parametrize("laplacian", [False, True])
def test_em_never_decreases_the_likelihood(laplacian: bool) -> None:
    generator = np.random.default_rng(3)
    x = np.concatenate([generator.normal(-3, 1, (60, DIM)), generator.laplace(3, 1, (60, DIM))])
    counts = generator.integers(1, 5, size=len(x)).astype(float)
    _, history = fit_mixture(x, counts, 2, laplacian, seed=0, iterations=15)
    assert (np.diff(history) >= -1e-9).all()


def test_gmm_with_counts_equals_scikit_learn_on_repeated_points() -> None:
    generator = np.random.default_rng(4)
    x = np.concatenate([generator.normal(-4, 1, (80, DIM)), generator.normal(4, 2, (80, DIM))])
    counts = generator.integers(1, 4, size=len(x))
    mixture, _ = fit_mixture(x, counts.astype(float), 2, laplacian=False, seed=0, iterations=60)
    peer = GaussianMixture(
        2, covariance_type="diag", random_state=0, tol=1e-9, max_iter=500, reg_covar=1e-9
    )
    peer.fit(np.repeat(x, counts, axis=0))
    order, other = np.argsort(mixture.centers[:, 0]), np.argsort(peer.means_[:, 0])
    np.testing.assert_allclose(mixture.weights[order], peer.weights_[other], rtol=1e-3)
    np.testing.assert_allclose(mixture.centers[order], peer.means_[other], rtol=1e-3)
    np.testing.assert_allclose(mixture.scales[order] ** 2, peer.covariances_[other], rtol=1e-3)


def test_hglmm_detects_the_laplacian_dimension() -> None:
    generator = np.random.default_rng(5)
    x = np.stack([generator.normal(2, 1, 4000), generator.laplace(-1, 2, 4000)], axis=1)
    mixture, _ = fit_mixture(x, np.ones(len(x)), 1, laplacian=True, seed=0, iterations=2)
    assert mixture.gaussian.tolist() == [[True, False]]
    np.testing.assert_allclose(mixture.centers[0], [2, -1], atol=0.1)
    np.testing.assert_allclose(mixture.scales[0], [1, 2], atol=0.1)


def test_fewer_words_than_centers_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 different words for 3 centers"):
        fit_mixture(np.eye(2), np.ones(2), 3, laplacian=True, seed=0, iterations=1)
