"""One SRU layer over packed sequences: matrix products around the recurrence, with a hand-written gradient."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bifocal.text_encoders.recurrent import sru_recurrence


class SRULayerFunction(torch.autograd.Function):
    """SRU layer on packed sequences: x (N, n), weight (3 d, n) or with highway (4 d, n), bias (2 d) -> (N, d)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        input_mask: Tensor | None,
        output_mask: Tensor | None,
        sizes: list[int],
    ) -> Tensor:
        dim = len(bias) // 2
        dropped = x if input_mask is None else _backend(x).multiply_steps_(x.clone(), input_mask, sizes)
        # In mixed precision only the products have low precision: the recurrence accumulates rounding errors.
        mixed = torch.is_autocast_enabled(x.device.type)
        ctx.product_dtype = torch.get_autocast_dtype(x.device.type) if mixed else x.dtype
        u = (dropped.to(ctx.product_dtype) @ weight.to(ctx.product_dtype).T).to(x.dtype)
        skip = u[:, 3 * dim :] if len(weight) > 3 * dim else x
        output: Tensor
        state, output = _backend(u).recurrence_forward(u, bias, skip, output_mask, sizes)
        ctx.save_for_backward(x, dropped, weight, u, state, input_mask, output_mask)
        ctx.sizes = sizes
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, dropped, weight, u, state, input_mask, output_mask = ctx.saved_tensors
        dim = state.shape[1]
        projected = len(weight) > 3 * dim
        grad_u, grad_skip = _backend(u).recurrence_backward(
            gradients[0].contiguous(), u, u[:, 3 * dim :] if projected else x, state, output_mask, ctx.sizes
        )
        factor = grad_u.to(ctx.product_dtype)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = (factor @ weight.to(ctx.product_dtype)).to(x.dtype)
            if input_mask is not None:
                _backend(u).multiply_steps_(grad_x, input_mask, ctx.sizes)
            if not projected:
                grad_x += grad_skip
        grad_weight = (factor.T @ dropped.to(ctx.product_dtype)).to(weight.dtype)
        return grad_x, grad_weight, grad_u[:, dim : 3 * dim].sum(dim=0), None, None, None


def _backend(tensor: Tensor) -> Any:
    """Return the module with the recurrence for the device of ``tensor``: fused kernels on a GPU with Triton."""
    if tensor.is_cuda and find_spec("triton") is not None:
        from bifocal.text_encoders.recurrent import sru_triton

        return sru_triton
    return sru_recurrence
