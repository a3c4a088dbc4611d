"""SRUEncoder against a loop over the equations of SRU."""

import math

import pytest
import torch
from torch import Tensor

from bifocal.text_encoders import SRUEncoder
from bifocal.text_encoders.recurrent.sru import SRULayer, SRULayerFunction


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def product(matrix: list[list[float]], x: list[float]) -> list[float]:
    return [sum(w * value for w, value in zip(row, x, strict=True)) for row in matrix]


def layer_loop(
    sentence: list[list[float]],
    weight: list[list[float]],
    bias: list[float],
    input_mask: list[float],
    output_mask: list[float],
) -> list[list[float]]:
    """Lei and Zhang 2017, eq. (3)-(7), in loops over tokens and dimensions."""
    dim = len(bias) // 2
    state = [0.0] * dim
    outputs = []
    for x in sentence:
        dropped = [value * mask for value, mask in zip(x, input_mask, strict=True)]
        u = product(weight, dropped)
        highway = u[3 * dim :] or x
        output = []
        for i in range(dim):
            forget = sigmoid(u[dim + i] + bias[i])
            reset = sigmoid(u[2 * dim + i] + bias[dim + i])
            state[i] = forget * state[i] + (1 - forget) * u[i]
            output.append(reset * math.tanh(state[i]) * output_mask[i] + (1 - reset) * highway[i])
        outputs.append(output)
    return outputs


def encoder_loop(encoder: SRUEncoder, sentence: list[list[float]]) -> list[float]:
    for layer in encoder.layers:
        assert isinstance(layer, SRULayer)
        ones = [1.0] * len(sentence[0]), [1.0] * layer.dim
        sentence = layer_loop(sentence, layer.weight.tolist(), layer.bias.tolist(), *ones)
    norm = math.sqrt(sum(value**2 for value in sentence[-1]))
    return [value / norm for value in sentence[-1]]


@pytest.fixture
def encoder() -> SRUEncoder:
    torch.manual_seed(0)
    encoder = SRUEncoder(input_dim=3, dim=4, layers=3).double().eval()
    for layer in encoder.layers:
        torch.nn.init.normal_(layer.bias)
    return encoder


def test_sru_equals_equations_for_any_length_and_padding(encoder: SRUEncoder) -> None:
    lengths = torch.tensor([2, 5, 1, 5, 3])
    values = torch.randn(5, 7, 3, dtype=torch.float64)
    expected = [
        encoder_loop(encoder, row[:n].tolist()) for row, n in zip(values, lengths, strict=True)
    ]
    torch.testing.assert_close(
        encoder(values, lengths), torch.tensor(expected, dtype=torch.float64)
    )


def test_padding_receives_no_gradient(encoder: SRUEncoder) -> None:
    values = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    encoder(values, torch.tensor([4, 1, 2])).sum().backward()
    assert values.grad is not None
    nonzero = values.grad.abs().sum(dim=2) > 0
    assert nonzero.tolist() == [[True] * 4, [True, False, False, False], [True, True, False, False]]


@pytest.mark.parametrize("input_dim", [3, 4])
@pytest.mark.parametrize("dropout", [False, True])
def test_sru_layer_with_masks_equals_equations_and_passes_gradcheck(
    input_dim: int, dropout: bool
) -> None:
    torch.manual_seed(1)
    dim, sizes = 4, [3, 3, 2, 1]

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    def random_mask(width: int) -> Tensor:
        return torch.rand(sizes[0], width, dtype=torch.float64).round() * 2

    x, weight, bias = (
        random(sum(sizes), input_dim),
        random((3 if input_dim == dim else 4) * dim, input_dim),
        random(2 * dim),
    )
    masks = (random_mask(input_dim), random_mask(dim)) if dropout else (None, None)
    output = SRULayerFunction.apply(x, weight, bias, *masks, sizes)
    starts = [0, 3, 6, 8]
    for sentence in range(sizes[0]):
        rows = [
            start + sentence for start, size in zip(starts, sizes, strict=True) if sentence < size
        ]
        mask_values = [
            [1.0] * width if m is None else m[sentence].tolist()
            for m, width in zip(masks, (input_dim, dim), strict=True)
        ]
        expected = layer_loop(x[rows].tolist(), weight.tolist(), bias.tolist(), *mask_values)
        torch.testing.assert_close(output[rows], torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(
        lambda *tensors: SRULayerFunction.apply(*tensors, *masks, sizes), (x, weight, bias)
    )


def test_output_dropout_uses_one_mask_per_sentence() -> None:
    torch.manual_seed(2)
    layer = SRULayer(input_dim=4, dim=4, output_dropout=0.5)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[:4].copy_(torch.eye(4))  # candidates are the input, all gates are 1/2
    x = torch.ones(6, 4)
    output = layer(x, [2, 2, 2]) - 0.5  # subtract the highway's half of the output
    dropped = (output == 0).view(3, 2, 4)
    assert dropped.any()
    assert not dropped.all()
    assert (dropped == dropped[0]).all()


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_training_and_evaluation_differ_only_by_dropout(dropout: float) -> None:
    torch.manual_seed(3)
    encoder = SRUEncoder(input_dim=5, dim=6, layers=2, dropout=dropout)
    values, lengths = torch.randn(4, 3, 5), torch.tensor([3, 2, 1, 3])
    training, evaluation = encoder.train()(values, lengths), encoder.eval()(values, lengths)
    assert torch.equal(training, evaluation) == (dropout == 0)
