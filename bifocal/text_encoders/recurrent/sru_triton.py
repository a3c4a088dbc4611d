"""Recurrence of an SRU layer as Triton kernels with the interface of ``sru_recurrence``.

On an H100 they are limited by memory: other sizes of a block, numbers of warps and stages gained
nothing.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def forward_kernel(
    u,
    bias,
    skip,
    mask,
    lengths,
    starts,
    state,
    output,
    dim,
    u_stride,
    skip_stride,
    MASKED: tl.constexpr,
    B: tl.constexpr,
):
    sequence = tl.program_id(0)
    column = tl.program_id(1) * B + tl.arange(0, B)
    inside = column < dim
    forget_bias = tl.load(bias + column, mask=inside, other=0.0)
    reset_bias = tl.load(bias + dim + column, mask=inside, other=0.0)
    if MASKED:
        keep = tl.load(mask + sequence * dim + column, mask=inside, other=0.0)
    c = tl.zeros_like(forget_bias)
    for t in range(tl.load(lengths + sequence)):
        row = tl.load(starts + t) + sequence
        at = u + row * u_stride + column
        candidate = tl.load(at, mask=inside, other=0.0)
        forget = tl.sigmoid(tl.load(at + dim, mask=inside, other=0.0) + forget_bias)
        reset = tl.sigmoid(tl.load(at + 2 * dim, mask=inside, other=0.0) + reset_bias)
        carried = tl.load(skip + row * skip_stride + column, mask=inside, other=0.0)
        c = candidate + forget * (c - candidate)
        active = _tanh(c)
        if MASKED:
            active = active * keep
        tl.store(at + dim, forget, mask=inside)
        tl.store(at + 2 * dim, reset, mask=inside)
        tl.store(state + row * dim + column, c, mask=inside)
        tl.store(output + row * dim + column, carried + reset * (active - carried), mask=inside)


@triton.jit
def backward_kernel(
    grad_output,
    u,
    skip,
    state,
    mask,
    lengths,
    starts,
    grad_u,
    grad_skip,
    dim,
    u_stride,
    skip_stride,
    grad_skip_stride,
    MASKED: tl.constexpr,
    B: tl.constexpr,
):
    sequence = tl.program_id(0)
    column = tl.program_id(1) * B + tl.arange(0, B)
    inside = column < dim
    if MASKED:
        keep = tl.load(mask + sequence * dim + column, mask=inside, other=0.0)
    length = tl.load(lengths + sequence)
    last = tl.load(starts + length - 1) + sequence
    c = tl.load(state + last * dim + column, mask=inside, other=0.0)
    grad_later = tl.zeros_like(c)
    for back in range(length):
        t = length - 1 - back
        row = tl.load(starts + t) + sequence
        at = u + row * u_stride + column
        candidate = tl.load(at, mask=inside, other=0.0)
        forget = tl.load(at + dim, mask=inside, other=0.0)
        reset = tl.load(at + 2 * dim, mask=inside, other=0.0)
        carried = tl.load(skip + row * skip_stride + column, mask=inside, other=0.0)
        grad = tl.load(grad_output + row * dim + column, mask=inside, other=0.0)
        before = tl.load(starts + tl.maximum(t - 1, 0)) + sequence
        c_before = tl.load(
            state + before * dim + column, mask=column < dim * tl.minimum(t, 1), other=0.0
        )
        active = _tanh(c)
        grad_state = grad * reset * (1 - active * active)
        if MASKED:
            grad_state = grad_state * keep
            active = active * keep
        grad_state += grad_later
        to = grad_u + row * u_stride + column
        tl.store(to, grad_state * (1 - forget), mask=inside)
        tl.store(to + dim, grad_state * (c_before - candidate) * forget * (1 - forget), mask=inside)
        tl.store(to + 2 * dim, grad * (active - carried) * reset * (1 - reset), mask=inside)
        tl.store(grad_skip + row * grad_skip_stride + column, grad * (1 - reset), mask=inside)
        grad_later = grad_state * forget
        c = c_before


def multiply_steps_(packed: Tensor, mask: Tensor, sizes: list[int]) -> Tensor:
    """Multiply in place, see ``bifocal.text_encoders.recurrent.sru_recurrence.multiply_steps_``."""
    return packed.mul_(mask.index_select(0, _step_layout(tuple(sizes), packed.device)[2]))


def recurrence_forward(
    u: Tensor, bias: Tensor, skip: Tensor, mask: Tensor | None, sizes: list[int]
) -> tuple[Tensor, Tensor]:
    """Return states and outputs, see
    ``bifocal.text_encoders.recurrent.sru_recurrence.recurrence_forward``."""
    dim = skip.shape[1]
    state = torch.empty(len(u), dim, dtype=u.dtype, device=u.device)
    output = torch.empty_like(state)
    forward_kernel[_grid(sizes, dim)](
        u,
        bias,
        skip,
        mask,
        *_step_layout(tuple(sizes), u.device)[:2],
        state,
        output,
        dim,
        u.stride(0),
        skip.stride(0),
        MASKED=mask is not None,
        B=BLOCK,
    )
    return state, output


def recurrence_backward(
    grad_output: Tensor,
    u: Tensor,
    skip: Tensor,
    state: Tensor,
    mask: Tensor | None,
    sizes: list[int],
) -> tuple[Tensor, Tensor]:
    """Return gradients, see
    ``bifocal.text_encoders.recurrent.sru_recurrence.recurrence_backward``."""
    dim = skip.shape[1]
    grad_u = torch.empty_like(u)
    grad_skip = grad_u[:, 3 * dim :] if u.shape[1] > 3 * dim else torch.empty_like(grad_output)
    backward_kernel[_grid(sizes, dim)](
        grad_output,
        u,
        skip,
        state,
        mask,
        *_step_layout(tuple(sizes), u.device)[:2],
        grad_u,
        grad_skip,
        dim,
        u.stride(0),
        skip.stride(0),
        grad_skip.stride(0),
        MASKED=mask is not None,
        B=BLOCK,
    )
    return grad_u, grad_skip


def _grid(sizes: list[int], dim: int) -> tuple[int, int]:
    return sizes[0], triton.cdiv(dim, BLOCK)


# All layers and both directions have the same layout; each new one costs three copies to the GPU.
@lru_cache(maxsize=4)
def _step_layout(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the length of each sequence, the first row of each step, and the sequence of each
    row."""
    counts = torch.tensor(sizes)
    lengths = (counts[:, None] > torch.arange(sizes[0])).sum(dim=0)
    sequences = torch.cat([torch.arange(size) for size in sizes])
    return lengths.to(device), (counts.cumsum(0) - counts).to(device), sequences.to(device)
