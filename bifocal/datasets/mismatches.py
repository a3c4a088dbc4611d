"""Captions that fit their own image worse than most others: they may belong to another image."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FOLDS, WORDS, DIMENSIONS, PENALTY = 5, 2000, 128, 1.0
SUSPICIOUS = 0.9
"""Fraction of other images that fit a caption better than its own from which on it is listed."""


class Mismatch(NamedTuple):
    """Caption's row, share of compared images that fit it better than its own, and best image's row."""

    caption: int
    better: float
    best: int


def mismatched_captions(
    images: NDArray[np.floating], captions: Sequence[str], image_of_caption: NDArray[np.integer], seed: int = 0
) -> list[Mismatch]:
    """Return captions that ``SUSPICIOUS`` of the other images fit better than their own, the worst first.

    The scores are cross-fitted: the images are divided into 5 parts, and a ridge regression from words (tf-idf) to
    image vectors that is fitted on four of them predicts the image vector of each caption of the fifth. So no model
    judges a caption that it was fitted on. Fewer than 50 images are too few to learn from, and give none.
    """
    from sklearn.decomposition import PCA  # imported here: scikit-learn takes seconds
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    if len(images) < 10 * FOLDS:
        return []
    words = TfidfVectorizer(max_features=WORDS, min_df=2, sublinear_tf=True).fit_transform(captions)
    targets = PCA(min(DIMENSIONS, *images.shape), random_state=seed).fit_transform(images.astype(np.float64))
    targets /= np.linalg.norm(targets, axis=1, keepdims=True).clip(1e-12)
    fold_of_image = np.random.default_rng(seed).permutation(len(images)) % FOLDS
    found = []
    for fold in range(FOLDS):
        inside = fold_of_image[image_of_caption] == fold
        model = Ridge(PENALTY).fit(words[~inside], targets[image_of_caption[~inside]])
        rows, held_out = np.flatnonzero(inside), np.flatnonzero(fold_of_image == fold)
        scores = model.predict(words[rows]) @ targets[held_out].T
        own = scores[np.arange(len(rows)), np.searchsorted(held_out, image_of_caption[rows])]
        better = (scores > own[:, None]).sum(axis=1) / (len(held_out) - 1)
        best = held_out[scores.argmax(axis=1)]
        found += [
            Mismatch(int(row), float(fraction), int(image))
            for row, fraction, image in zip(rows, better, best, strict=True)
            if fraction >= SUSPICIOUS
        ]
    return sorted(found, key=lambda mismatch: (-mismatch.better, mismatch.caption))
