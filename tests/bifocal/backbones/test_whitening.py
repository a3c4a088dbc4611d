"""PCA whitening against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from bifocal.backbones.whitening import learn_whitening


def test_whitening_equals_scikit_learn_and_decorrelates() -> None:
    random = np.random.default_rng(0)
    vectors = torch.from_numpy(
        random.normal(size=(400, 9)) @ random.normal(size=(9, 9)) + random.normal(size=9)
    )
    whitening = learn_whitening(vectors.split(64), dim=5)
    reference = PCA(5, whiten=True).fit(vectors.numpy())
    white = whitening(vectors.float()).double()
    expected = torch.from_numpy(reference.transform(vectors.numpy())) * math.sqrt(400 / 399)
    torch.testing.assert_close(white.abs(), expected.abs(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(white.T @ white / 400, torch.eye(5).double(), rtol=1e-3, atol=1e-3)


def test_whitening_to_more_directions_than_the_data_is_an_error() -> None:
    flat = torch.randn(50, 2) @ torch.randn(2, 6)
    with pytest.raises(
        ValueError, match="50 vectors vary in 2 directions, a whitening to 4 needs more"
    ):
        learn_whitening([flat], dim=4)
    with pytest.raises(ValueError, match="0 vectors vary in 0 directions"):
        learn_whitening([], dim=1)
