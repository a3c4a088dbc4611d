"""Streaming PCA against scikit-learn."""

import numpy as np
from sklearn.decomposition import PCA

from bifocal.text.vectorizers.streaming_pca import streaming_pca


def test_streaming_pca_equals_scikit_learn() -> None:
    generator = np.random.default_rng(6)
    spectrum = np.array([9, 7, 5, 3, *[0.01] * 16])
    x = (generator.normal(size=(300, 20)) * spectrum + generator.normal(size=20)).astype(np.float32)
    mean, components = streaming_pca(lambda: np.array_split(x, 7), components=4, seed=0, oversample=5)
    peer = PCA(4).fit(x)
    np.testing.assert_allclose(mean, peer.mean_, atol=1e-4)
    np.testing.assert_allclose(np.abs(components.T @ peer.components_.T), np.eye(4), atol=1e-3)
