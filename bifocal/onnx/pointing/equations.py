"""A phrase as a mixture of classes: its map over the cells of an image, and its presence. See ``ClassMixture``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DEVIATION = 1e-6
"""Smallest standard deviation that a map is divided by."""
MAP_TEMPERATURE, PRESENCE_TEMPERATURE = 6.0, 2.0
"""Divisors of the logits before the softmax: of each cell for the map, and of each cell for the presence."""


def class_weights(similarities: Array, temperature: float) -> Array:
    """Return the weights of K classes in a phrase: the softmax of its similarities (..., K) over ``temperature``."""
    exponents = np.exp((similarities - similarities.max(axis=-1, keepdims=True)) / temperature)
    weights: Array = exponents / exponents.sum(axis=-1, keepdims=True)
    return weights


def cell_classes(logits: Array) -> Array:
    """Return the class probabilities (h, w, K) of cells, softened: softmax(logits / 6)."""
    return class_weights(logits, MAP_TEMPERATURE)


def phrase_map(classes: Array, weights: Array) -> Array:
    """Return the map (h, w) of a phrase: the class probabilities (h, w, K) of cells, mixed with the weights (K,)."""
    values: Array = classes @ (weights - weights.mean()).astype(classes.dtype)
    return values


def standardize(values: Array) -> Array:
    """Return a map with mean 0 and standard deviation 1; a constant map becomes 0."""
    standardized: Array = (values - values.mean()) / (values.std() + DEVIATION)
    return standardized


def enlargement(cells: int, side: int, sigma: float) -> Array:
    """Return the matrix (side, cells) that resizes one axis linearly, then smooths it with a Gaussian of ``sigma``
    cells, 0 for no smoothing.
    """
    centers = (np.arange(side) + 0.5) / side
    position = np.clip(centers * cells - 0.5, 0, cells - 1)
    # The weight of a cell falls linearly to 0 at the next cell, as in bilinear interpolation.
    linear: Array = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(cells)))
    if not sigma:
        return linear
    gaussian = np.exp(-np.square((centers[:, None] - centers) * cells) / (2 * sigma**2))
    smoothed: Array = gaussian @ linear / gaussian.sum(axis=1, keepdims=True)
    return smoothed


def heatmap(maps: Sequence[Array], side: int, sigma: float, center: float) -> NDArray[np.float32]:
    """Return the heatmap (side, side) of a phrase from its maps (h, w) at one or several sizes of the image.

    Each map is standardized, enlarged, smoothed and standardized again; the sum is standardized. The prior
    ``center (x^2 + y^2)`` is subtracted, with x and y from -1 to 1.
    """
    total = np.zeros((side, side))
    for values in maps:
        rows, columns = (enlargement(cells, side, sigma) for cells in values.shape)
        total += standardize(rows @ standardize(values) @ columns.T)
    axis = np.square(2 * (np.arange(side) + 0.5) / side - 1)
    return np.asarray(standardize(total) - center * (axis[:, None] + axis), dtype=np.float32)


def class_presence(logits: Array) -> Array:
    """Return the mean over cells of the class probabilities softmax(logits / 2): (h, w, K) -> (K,)."""
    cells = logits.reshape(-1, logits.shape[-1]) / PRESENCE_TEMPERATURE
    mean: Array = class_weights(cells, 1.0).mean(axis=0)
    return mean


def presence_score(presence: Array, weights: Array) -> float:
    """Return the logarithm of the class probabilities (K,) of an image, mixed with the weights (K,) of a phrase."""
    return float(np.log(presence @ weights))


def probability(score: float, slope: float, offset: float) -> float:
    """Return the calibrated probability that a phrase is in an image: the logistic of ``slope score + offset``."""
    return float(1 / (1 + np.exp(-(slope * score + offset))))
