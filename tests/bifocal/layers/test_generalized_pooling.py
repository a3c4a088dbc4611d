"""Generalized pooling against loops over its equations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bifocal.layers.generalized_pooling import SHARPNESS, GeneralizedPooling


def times(matrix: Tensor, vector: list[float]) -> list[float]:
    return [sum(w * x for w, x in zip(row, vector, strict=True)) for row in matrix.tolist()]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def gru(network: nn.GRU, sequence: list[list[float]]) -> list[list[float]]:
    """Outputs of a GRU with one layer, by the paper's equations as torch states them."""
    size = network.hidden_size
    state, outputs = [0.0] * size, []
    for x in sequence:
        given_ = [a + b for a, b in zip(times(network.weight_ih_l0, x), network.bias_ih_l0.tolist(), strict=True)]
        past = [a + b for a, b in zip(times(network.weight_hh_l0, state), network.bias_hh_l0.tolist(), strict=True)]
        reset = [sigmoid(given_[k] + past[k]) for k in range(size)]
        update = [sigmoid(given_[size + k] + past[size + k]) for k in range(size)]
        new = [math.tanh(given_[2 * size + k] + reset[k] * past[2 * size + k]) for k in range(size)]
        state = [(1 - update[k]) * new[k] + update[k] * state[k] for k in range(size)]
        outputs.append(state)
    return outputs


def position(k: int, dim: int) -> list[float]:
    """Eq. (5): sin(w_j k) at 2 j and cos(w_j k) at 2 j + 1, with w_j = 10000^(-2 j / dim)."""
    angles = [k / 10_000 ** (2 * j / dim) for j in range(dim // 2)]
    return [value for angle in angles for value in (math.sin(angle), math.cos(angle))]


def pooled(pooling: GeneralizedPooling, elements: list[list[float]]) -> list[float]:
    """Eq. (3)-(6) for one set of elements."""
    count = len(elements)
    encodings = [position(k, pooling.position_dim) for k in range(1, count + 1)]
    forwards, backwards = gru(pooling.forwards, encodings), gru(pooling.backwards, encodings[::-1])[::-1]
    means = [[(a + b) / 2 for a, b in zip(*pair, strict=True)] for pair in zip(forwards, backwards, strict=True)]
    exponentials = [math.exp(SHARPNESS * times(pooling.output.weight, mean)[0]) for mean in means]
    theta = [value / sum(exponentials) for value in exponentials]
    ranked = [sorted((element[c] for element in elements), reverse=True) for c in range(len(elements[0]))]
    return [sum(t * value for t, value in zip(theta, channel, strict=True)) for channel in ranked]


def test_generalized_pooling_equals_equations() -> None:
    torch.manual_seed(0)
    pooling = GeneralizedPooling(position_dim=6, hidden=4).double()
    values = torch.randn(4, 5, 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    result = pooling(values, mask)
    for row in range(4):
        expected = pooled(pooling, values[row, mask[row]].tolist())
        assert result[row].tolist() == pytest.approx(expected)
    single = [sum(values[2, 3].tolist()), sum(result[2].tolist())]
    assert single[0] == pytest.approx(single[1])  # one element is pooled to itself


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), sharp=st.sampled_from([0.0, 1.0]))
def test_weights_sum_to_one_and_equal_weights_are_the_mean(seed: int, sharp: float) -> None:
    torch.manual_seed(seed)
    pooling = GeneralizedPooling().double()
    with torch.no_grad():
        pooling.output.weight *= sharp
    values, mask = torch.randn(3, 6, 2, dtype=torch.float64), torch.rand(3, 6) < 0.7
    mask[:, 0] = True
    weights = pooling.weights(mask.sum(dim=1), 6)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(3, dtype=torch.float64))
    assert (weights > 0).sum(dim=1).equal(mask.sum(dim=1))
    low, high = values.masked_fill(~mask[:, :, None], 9).amin(dim=1), values.masked_fill(~mask[:, :, None], -9).amax(1)
    result = pooling(values, mask)
    assert ((low - 1e-12 <= result) & (result <= high + 1e-12)).all()
    if not sharp:
        mean = (values * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        torch.testing.assert_close(result, mean)


def test_gradients_are_exact_and_padding_gets_none() -> None:
    torch.manual_seed(1)
    pooling = GeneralizedPooling(position_dim=4, hidden=3).double()
    values = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False, True], [True, True, True, True]])
    assert torch.autograd.gradcheck(lambda v: pooling(v, mask), values)
    pooling(values, mask).sum().backward()
    assert values.grad is not None
    assert not values.grad[0, 2].any()
