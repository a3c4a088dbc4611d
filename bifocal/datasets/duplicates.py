"""Near-duplicate images, shared captions, and captions that fit other images better than their
own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from bifocal.processors import usable_decoders

SIDE = 16
DECODED_SIDE = 4 * SIDE
"""Pixels per side that suffice for a thumbnail: JPEG files can be decoded at a fraction of their
resolution."""
MIN_CORRELATION = 0.995
"""Smallest correlation of the thumbnails of two near-duplicates."""
BLOCK = 1024
FOLDS, WORDS, DIMENSIONS, PENALTY = 5, 2000, 128, 1.0
SUSPICIOUS = 0.9
"""Fraction of other images that fit a caption better than its own from which on it is listed."""


class DuplicatePair(NamedTuple):
    """Ids of two near-duplicates, and the correlation of their thumbnails."""

    first: str
    second: str
    correlation: float


def shared_captions(captions: pd.DataFrame) -> pd.DataFrame:
    """Return ``text`` and number of ``images`` of captions with several images, ignoring case and
    white space."""
    text = captions["text"].str.lower().str.split().str.join(" ")
    counts = captions["image_id"].groupby(text).nunique()
    shared = counts[counts > 1].sort_values(ascending=False, kind="stable")
    return pd.DataFrame({"text": shared.index, "images": shared.to_numpy()})


def near_duplicates(
    first: Sequence[str],
    second: Sequence[str],
    read: Callable[[str, int], Image.Image],
) -> list[DuplicatePair]:
    """Return pairs across two lists of images that look the same, by the correlation of gray 16 x
    16 thumbnails.

    This finds copies in other sizes and compressions, not crops; ``read`` opens an image of at
    least this size.
    """
    with ThreadPoolExecutor(usable_decoders()) as pool:

        def thumbnails(image_ids: Sequence[str]) -> NDArray[np.float32]:
            return np.stack(
                [*pool.map(lambda image_id: _thumbnail(read(image_id, DECODED_SIDE)), image_ids)]
            )

        left, right = thumbnails(first), thumbnails(second)
    pairs = []
    for start in range(0, len(left), BLOCK):
        correlation = left[start : start + BLOCK] @ right.T
        for row, column in np.argwhere(correlation >= MIN_CORRELATION):
            pairs.append(
                DuplicatePair(first[start + row], second[column], float(correlation[row, column]))
            )
    return sorted(pairs, key=lambda pair: (-pair.correlation, pair.first, pair.second))


def _thumbnail(image: Image.Image) -> NDArray[np.float32]:
    """Return the pixels as a vector of mean 0 and norm 1; 0 without contrast."""
    gray = np.asarray(
        image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32
    ).ravel()
    gray = gray - gray.mean()
    norm = float(np.linalg.norm(gray))
    return gray / norm if norm > 1.0 else np.zeros_like(gray)


class Mismatch(NamedTuple):
    """Caption's row, share of compared images that fit it better than its own, and best image's
    row."""

    caption: int
    better: float
    best: int


def mismatched_captions(
    images: NDArray[np.floating],
    captions: Sequence[str],
    image_of_caption: NDArray[np.integer],
    seed: int = 0,
) -> list[Mismatch]:
    """Return captions that ``SUSPICIOUS`` of the other images fit better than their own, the worst
    first.

    The scores are cross-fitted: the images are divided into 5 parts, and a ridge regression from
    words (tf-idf) to image vectors that is fitted on four of them predicts the image vector of each
    caption of the fifth. So no model judges a caption that it was fitted on. Fewer than 50 images
    are too few to learn from, and give none.
    """
    from sklearn.decomposition import PCA  # imported here: scikit-learn takes seconds
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    if len(images) < 10 * FOLDS:
        return []
    words = TfidfVectorizer(max_features=WORDS, min_df=2, sublinear_tf=True).fit_transform(captions)
    targets = PCA(min(DIMENSIONS, *images.shape), random_state=seed).fit_transform(
        images.astype(np.float64)
    )
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
