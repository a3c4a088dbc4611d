"""Fisher vectors against numerical derivatives of the log-likelihood; EM; the streaming PCA."""

import numpy as np
import pytest
from scipy.stats import laplace, norm
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

from bifocal.text.vectorizers import FisherVectors
from bifocal.text.vectorizers.gaussian_mixture import Mixture, fit_mixture
from bifocal.text.vectorizers.streaming_pca import streaming_pca

CENTRES, DIM = 3, 2


def far_mixture() -> Mixture:
    generator = np.random.default_rng(0)
    return Mixture(
        np.array([0.2, 0.3, 0.5]),
        3 * generator.normal(size=(CENTRES, DIM)),
        0.5 + generator.random((CENTRES, DIM)),
        generator.random((CENTRES, DIM)) < 0.5,
    )


def log_likelihood(mixture: Mixture, x: np.ndarray) -> float:
    """ln p(x) of one point, from SciPy's densities."""
    total = 0.0
    for k, weight in enumerate(mixture.weights):
        density = weight
        for d in range(DIM):
            kind = norm if mixture.gaussian[k, d] else laplace
            density *= kind.pdf(x[d], mixture.centres[k, d], mixture.scales[k, d])
        total += density
    return float(np.log(total))


def test_fisher_terms_are_numerical_derivatives() -> None:
    mixture, step = far_mixture(), 1e-6
    points = np.random.default_rng(1).normal(size=(5, DIM)) * 3
    found = mixture.fisher_terms(points)
    for point, terms in zip(points, found, strict=True):
        expected = []
        for parameters, information in ((mixture.centres, 1.0), (mixture.scales, 2.0)):
            for k in range(CENTRES):
                for d in range(DIM):
                    value = parameters[k, d]
                    parameters[k, d] = value + step
                    above = log_likelihood(mixture, point)
                    parameters[k, d] = value - step
                    below = log_likelihood(mixture, point)
                    parameters[k, d] = value
                    # Of a Gaussian 1/s^2 for its mean and 2/s^2 for its deviation, of a Laplacian 1/s^2 for both.
                    factor = information if mixture.gaussian[k, d] else 1.0
                    root = np.sqrt(mixture.weights[k] * factor) / mixture.scales[k, d]
                    expected.append((above - below) / (2 * step) / root)
        np.testing.assert_allclose(terms, expected, atol=1e-6)


def test_responsibilities_are_bayes_rule() -> None:
    mixture = far_mixture()
    x = np.random.default_rng(2).normal(size=(4, DIM))
    shares = mixture.responsibilities(x)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    for point, row in zip(x, np.exp(mixture.log_joint(x)).sum(axis=1), strict=True):
        assert np.log(row) == pytest.approx(log_likelihood(mixture, point))


@pytest.mark.parametrize("laplacian", [False, True])
def test_em_climbs(laplacian: bool) -> None:
    generator = np.random.default_rng(3)
    x = np.concatenate([generator.normal(-3, 1, (60, DIM)), generator.laplace(3, 1, (60, DIM))])
    counts = generator.integers(1, 5, size=len(x)).astype(float)
    _, history = fit_mixture(x, counts, 2, laplacian, seed=0, iterations=15)
    assert (np.diff(history) >= -1e-9).all()


def test_counts_stand_for_repeated_points_and_gmm_is_scikit_learn_s() -> None:
    generator = np.random.default_rng(4)
    x = np.concatenate([generator.normal(-4, 1, (80, DIM)), generator.normal(4, 2, (80, DIM))])
    counts = generator.integers(1, 4, size=len(x))
    found, _ = fit_mixture(x, counts.astype(float), 2, laplacian=False, seed=0, iterations=60)
    peer = GaussianMixture(2, covariance_type="diag", random_state=0, tol=1e-9, max_iter=500, reg_covar=1e-9)
    peer.fit(np.repeat(x, counts, axis=0))
    order, other = np.argsort(found.centres[:, 0]), np.argsort(peer.means_[:, 0])
    np.testing.assert_allclose(found.weights[order], peer.weights_[other], rtol=1e-3)
    np.testing.assert_allclose(found.centres[order], peer.means_[other], rtol=1e-3)
    np.testing.assert_allclose(found.scales[order] ** 2, peer.covariances_[other], rtol=1e-3)


def test_hybrid_finds_which_dimension_is_laplacian() -> None:
    generator = np.random.default_rng(5)
    x = np.stack([generator.normal(2, 1, 4000), generator.laplace(-1, 2, 4000)], axis=1)
    mixture, _ = fit_mixture(x, np.ones(len(x)), 1, laplacian=True, seed=0, iterations=2)
    assert mixture.gaussian.tolist() == [[True, False]]
    np.testing.assert_allclose(mixture.centres[0], [2, -1], atol=0.1)
    np.testing.assert_allclose(mixture.scales[0], [1, 2], atol=0.1)


def test_fewer_words_than_centres_is_said() -> None:
    with pytest.raises(ValueError, match="2 different words for 3 centres"):
        fit_mixture(np.eye(2), np.ones(2), 3, laplacian=True, seed=0, iterations=1)


def test_streaming_pca_is_pca() -> None:
    generator = np.random.default_rng(6)
    spectrum = np.array([9, 7, 5, 3, *[0.01] * 16])
    x = (generator.normal(size=(300, 20)) * spectrum + generator.normal(size=20)).astype(np.float32)
    mean, components = streaming_pca(lambda: np.array_split(x, 7), components=4, seed=0, oversample=5)
    peer = PCA(4).fit(x)
    np.testing.assert_allclose(mean, peer.mean_, atol=1e-4)
    np.testing.assert_allclose(np.abs(components.T @ peer.components_.T), np.eye(4), atol=1e-3)


def test_a_sentence_is_the_normalised_mean_of_its_words() -> None:
    captions = ["a dog runs", "a cat runs home", "the dog eats", "the cat eats food"] * 3
    vectorizer = FisherVectors(dim=4, centres=2, components=5, epochs=1, iterations=2)
    vectorizer.fit(captions, seed=0)
    ids = vectorizer.table.vocabulary.encode(["dog", "food", "dog"])
    words = (vectorizer.table.vectors[ids] - vectorizer.state["word_mean"]) @ vectorizer.state["unmixing"]
    mixture = Mixture(*(vectorizer.state[name] for name in ("weights", "centres", "scales", "gaussian")))
    mean = mixture.fisher_terms(words.astype(float)).mean(axis=0)
    expected = np.sign(mean) * np.sqrt(np.abs(mean))
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(vectorizer.fisher([np.array(ids)])[0], expected, atol=1e-5)
