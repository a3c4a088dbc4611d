"""Logistic regression by Newton's method."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
RIDGE, STEPS, TOLERANCE = 1e-3, 100, 1e-7


def fit_logistic(variables: Array, labels: Array) -> Array:
    """Return intercept and weights (1 + d,) of a logistic regression on variables (n, d), by
    Newton's method.

    The weights have a weak ridge, so that they are finite where a variable separates the labels.
    """
    inputs = np.column_stack([np.ones(len(variables)), variables])
    ridge = np.diag([0.0, *np.full(variables.shape[1], RIDGE)])

    def loss(weights: Array) -> float:
        values = inputs @ weights
        return float(
            (np.logaddexp(0, values) - labels * values).sum() + weights @ ridge @ weights / 2
        )

    weights = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        chances = probabilities(weights, variables)
        gradient = inputs.T @ (chances - labels) + ridge @ weights
        curvature = (inputs.T * (chances * (1 - chances))) @ inputs + ridge
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        before = loss(weights)
        while loss(weights - step) > before and np.abs(step).max() > TOLERANCE:
            step = step / 2
        weights = weights - step
        if np.abs(step).max() <= TOLERANCE:
            break
    return weights


def probabilities(weights: Array, variables: Array) -> Array:
    """Return the probabilities (n,) by a logistic regression on variables (n, d)."""
    chances: Array = (1 + np.tanh((weights[0] + variables @ weights[1:]) / 2)) / 2
    return chances
