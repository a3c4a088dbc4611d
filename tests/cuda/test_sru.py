"""SRU on the GPU, where Triton kernels compute its recurrence, against the PyTorch recurrence in
float64 on the CPU."""

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from bifocal.text_encoders.recurrent import sru_recurrence
from bifocal.text_encoders.recurrent.sru import SRULayerFunction, _backend
from tests.cuda.device import DEVICE, needs_device, relative_error

pytestmark = needs_device
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}


def step_sizes(batch: int, time: int) -> list[int]:
    """Return the number of sentences in each step; most sentences are shorter than ``time``."""
    return [max(1, batch - batch * step // (time + 1)) for step in range(time)]


def dropout_mask(batch: int, dim: int) -> Tensor:
    return torch.rand(batch, dim, dtype=torch.float64).round() * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("batch", "time", "dim"), [(160, 20, 2400), (160, 20, 512), (7, 5, 77), (1, 1, 1)]
)
@pytest.mark.parametrize("columns", [3, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_recurrence_equals_float64(
    dtype: torch.dtype, batch: int, time: int, dim: int, columns: int, masked: bool
) -> None:
    torch.manual_seed(0)
    sizes = step_sizes(batch, time)
    rows = sum(sizes)
    u, bias, grad, x = (
        torch.randn(*shape, dtype=torch.float64)
        for shape in ((rows, columns * dim), (2 * dim,), (rows, dim), (rows, dim))
    )
    mask = dropout_mask(batch, dim) if masked else None

    def results(device: torch.device, kind: torch.dtype) -> list[Tensor]:
        own_u, own_bias, own_grad, own_x = (
            tensor.to(device, kind, copy=True) for tensor in (u, bias, grad, x)
        )
        own_mask = None if mask is None else mask.to(device, kind)
        backend = _backend(own_u)
        # Without Triton this would compare the PyTorch recurrence with itself.
        fused = device.type == "cuda" and find_spec("triton") is not None
        assert (backend is sru_recurrence) != fused
        skip = own_u[:, 3 * dim :] if columns == 4 else own_x
        state, output = backend.recurrence_forward(own_u, own_bias, skip, own_mask, sizes)
        gradients = backend.recurrence_backward(own_grad, own_u, skip, state, own_mask, sizes)
        return [own_u, state, output, *gradients]

    for actual, expected in zip(
        results(DEVICE, dtype), results(torch.device("cpu"), torch.float64), strict=True
    ):
        assert actual.dtype == dtype
        assert relative_error([actual], [expected]) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("input_dim", "dim"), [(620, 300), (2400, 2400)])
def test_layer_with_dropout_equals_float64(dtype: torch.dtype, input_dim: int, dim: int) -> None:
    """With bfloat16, weights and inputs are float32 and the products are in mixed precision."""
    torch.manual_seed(0)
    sizes = step_sizes(16, 10)
    shapes = (sum(sizes), input_dim), ((3 if input_dim == dim else 4) * dim, input_dim), (2 * dim,)
    leaves = [torch.randn(*shape, dtype=torch.float64) / shape[-1] ** 0.5 for shape in shapes]
    masks, grad = (
        [dropout_mask(16, size) for size in (input_dim, dim)],
        torch.randn(sum(sizes), dim),
    )

    def results(device: torch.device, kind: torch.dtype, mixed: bool) -> list[Tensor]:
        own = [leaf.to(device, kind, copy=True).requires_grad_() for leaf in leaves]
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            output = SRULayerFunction.apply(*own, *(mask.to(device, kind) for mask in masks), sizes)
        output.backward(grad.to(output))
        return [output, *(leaf.grad for leaf in own if leaf.grad is not None)]

    mixed = dtype == torch.bfloat16
    actual = results(DEVICE, torch.float32 if mixed else dtype, mixed)
    for found, expected in zip(
        actual, results(torch.device("cpu"), torch.float64, False), strict=True
    ):
        assert relative_error([found], [expected]) < TOLERANCES[dtype]
