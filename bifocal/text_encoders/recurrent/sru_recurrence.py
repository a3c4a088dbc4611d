"""Recurrence of an SRU layer over packed sequences, forward and backward, one fused operation per
step."""

from collections.abc import Iterator

import torch
from torch import Tensor


def steps(sizes: list[int]) -> Iterator[slice]:
    """Yield the rows of each time step in packed sequences; ``sizes`` of the steps never
    increase."""
    start = 0
    for size in sizes:
        yield slice(start, start + size)
        start += size


def multiply_steps_(packed: Tensor, mask: Tensor, sizes: list[int]) -> Tensor:
    """Multiply every step of ``packed`` (N, d) by the same ``mask`` (B, d), in place."""
    for rows in steps(sizes):
        packed[rows].mul_(mask[: rows.stop - rows.start])
    return packed


def recurrence_forward(
    u: Tensor, bias: Tensor, skip: Tensor, mask: Tensor | None, sizes: list[int]
) -> tuple[Tensor, Tensor]:
    """Return states c and outputs h, both (N, d); replaces the gates in ``u`` by their sigmoids.

    ``u`` (N, at least 3 d) holds candidates, forget and reset gates, ``skip`` (N, d) the highway,
    ``mask`` (B, d) the dropout of tanh(c); ``sizes`` never increase.
    """
    dim = skip.shape[1]
    u[:, dim : 3 * dim].add_(bias).sigmoid_()
    candidate, forget, reset = u[:, :dim], u[:, dim : 2 * dim], u[:, 2 * dim : 3 * dim]
    state = torch.empty_like(candidate, memory_format=torch.contiguous_format)
    previous = torch.zeros((), dtype=u.dtype, device=u.device).expand(sizes[0], dim)
    for rows in steps(sizes):
        size = rows.stop - rows.start
        torch.lerp(candidate[rows], previous[:size], forget[rows], out=state[rows])
        previous = state[rows]
    active = torch.tanh(state)
    if mask is not None:
        multiply_steps_(active, mask, sizes)
    return state, torch.lerp(skip, active, reset, out=active)


def recurrence_backward(
    grad_output: Tensor,
    u: Tensor,
    skip: Tensor,
    state: Tensor,
    mask: Tensor | None,
    sizes: list[int],
) -> tuple[Tensor, Tensor]:
    """Return gradients for ``u`` before its sigmoids, and for ``skip`` (N, d), which may be a view
    of ``u``."""
    dim = skip.shape[1]
    forget, reset = u[:, dim : 2 * dim], u[:, 2 * dim : 3 * dim]
    grad_u = torch.empty_like(u)
    grad_candidate, grad_forget, grad_reset = (
        grad_u[:, :dim],
        grad_u[:, dim : 2 * dim],
        grad_u[:, 2 * dim : 3 * dim],
    )
    grad_skip = grad_u[:, 3 * dim :] if u.shape[1] > 3 * dim else torch.empty_like(grad_output)

    active = torch.tanh(state)
    grad_state = grad_output * reset
    torch.sub(grad_output, grad_state, out=grad_skip)
    if mask is not None:
        multiply_steps_(grad_state, mask, sizes)
    torch.ops.aten.tanh_backward.grad_input(grad_state, active, grad_input=grad_state)
    if mask is not None:
        multiply_steps_(active, mask, sizes)
    torch.mul(active.sub_(skip), grad_output, out=grad_reset)
    torch.ops.aten.sigmoid_backward.grad_input(grad_reset, reset, grad_input=grad_reset)

    later: slice | None = None
    previous = active  # reuse its memory for c_{t-1} - candidate
    for rows in reversed(list(steps(sizes))):
        if later is not None:
            earlier = slice(rows.start, rows.start + later.stop - later.start)
            grad_state[earlier].addcmul_(grad_state[later], forget[later])
            torch.sub(state[earlier], u[later, :dim], out=previous[later])
        later = rows
    torch.neg(u[: sizes[0], :dim], out=previous[: sizes[0]])
    torch.mul(grad_state, forget, out=grad_candidate)
    torch.sub(grad_state, grad_candidate, out=grad_candidate)
    torch.ops.aten.sigmoid_backward.grad_input(
        previous.mul_(grad_state), forget, grad_input=grad_forget
    )
    return grad_u, grad_skip
