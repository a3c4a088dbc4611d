"""The equations of the mixture of classes, by loops over Python floats."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from bifocal.onnx.pointing import head

Rows = list[list[float]]


def weights_by_loops(similarities: list[float], temperature: float) -> list[float]:
    exponents = [math.exp(similarity / temperature) for similarity in similarities]
    return [exponent / sum(exponents) for exponent in exponents]


def standardized_by_loops(values: Rows) -> Rows:
    flat = [value for row in values for value in row]
    mean = sum(flat) / len(flat)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in flat) / len(flat))
    return [[(value - mean) / (deviation + 1e-6) for value in row] for row in values]


def pixel_by_loops(values: Rows, x: float, y: float) -> float:
    """Bilinear interpolation at x, y in [0, 1], with the border's value outside the centers."""
    row = min(max(y * len(values) - 0.5, 0.0), len(values) - 1.0)
    column = min(max(x * len(values[0]) - 0.5, 0.0), len(values[0]) - 1.0)
    total = 0.0
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            total += max(0.0, 1 - abs(row - i)) * max(0.0, 1 - abs(column - j)) * value
    return total


def heatmap_by_loops(maps: list[Rows], side: int, sigma: float, center: float) -> Rows:
    axis = [(number + 0.5) / side for number in range(side)]
    total = [[0.0] * side for _ in axis]
    for values in maps:
        known = standardized_by_loops(values)
        large = [[pixel_by_loops(known, x, y) for x in axis] for y in axis]
        smooth = [[0.0] * side for _ in axis]
        for i, y in enumerate(axis):
            for j, x in enumerate(axis):
                found = weight_sum = 0.0
                for k, v in enumerate(axis):
                    for n, u in enumerate(axis):
                        down, across = (y - v) * len(values), (x - u) * len(values[0])
                        weight = math.exp(-(down**2 + across**2) / (2 * sigma**2))
                        found, weight_sum = found + weight * large[k][n], weight_sum + weight
                smooth[i][j] = found / weight_sum
        for i, line in enumerate(standardized_by_loops(smooth)):
            for j, value in enumerate(line):
                total[i][j] += value
    result = standardized_by_loops(total)
    return [
        [result[i][j] - center * ((2 * x - 1) ** 2 + (2 * y - 1) ** 2) for j, x in enumerate(axis)]
        for i, y in enumerate(axis)
    ]


def random(*shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=shape)


def test_weights_are_a_softmax_with_a_temperature() -> None:
    similarities = random(7)
    assert head.class_weights(similarities, 0.07) == pytest.approx(
        weights_by_loops(similarities.tolist(), 0.07)
    )
    assert head.class_weights(1000 * similarities, 0.07).sum() == pytest.approx(1)


def test_a_map_is_the_mixture_of_softened_probabilities_up_to_a_constant() -> None:
    logits, weights = 5 * random(3, 4, 5), head.class_weights(random(5), 1.0)
    found = head.phrase_map(head.cell_classes(logits), weights)
    expected = np.zeros((3, 4))
    for i in range(3):
        for j in range(4):
            exponents = [math.exp(value / 6) for value in logits[i, j].tolist()]
            expected[i, j] = sum(
                w * e / sum(exponents) for w, e in zip(weights.tolist(), exponents, strict=True)
            )
    difference = found - expected
    assert difference == pytest.approx(np.full((3, 4), difference[0, 0]))
    assert head.standardize(found) == pytest.approx(head.standardize(expected), abs=1e-4)


@pytest.mark.parametrize("shapes", [[(3, 4)], [(2, 2), (3, 5)]])
def test_a_heatmap_is_standardized_smoothed_and_less_the_prior(
    shapes: list[tuple[int, int]],
) -> None:
    maps = [random(*shape) for shape in shapes]
    expected = heatmap_by_loops(
        [values.tolist() for values in maps], side=6, sigma=0.8, center=0.25
    )
    assert head.heatmap(maps, side=6, sigma=0.8, center=0.25) == pytest.approx(
        np.array(expected), abs=1e-5
    )


def test_a_constant_map_leaves_the_prior() -> None:
    found = head.heatmap([np.ones((3, 3))], side=5, sigma=0.8, center=0.25)
    assert np.unravel_index(found.argmax(), found.shape) == (2, 2)


def test_presence_is_the_logarithm_of_the_mixed_mean_probabilities() -> None:
    logits, weights = random(2, 3, 4), [0.1, 0.2, 0.3, 0.4]
    total = 0.0
    for row in logits.tolist():
        for cell in row:
            exponents = [math.exp(value / 2) for value in cell]
            total += (
                sum(w * e / sum(exponents) for w, e in zip(weights, exponents, strict=True)) / 6
            )
    score = head.presence_score(head.class_presence(logits), np.array(weights))
    assert score == pytest.approx(math.log(total))
    assert head.probability(2 * score + 3) == pytest.approx(
        1 / (1 + math.exp(-2 * math.log(total) - 3))
    )
