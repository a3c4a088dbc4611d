"""Text encoder of BEAN and SMILE: simple recurrent units."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, normalize
from torch.nn.utils.rnn import pack_padded_sequence

from bifocal.text_encoders.base import TextEncoder, check_sequences, last_true_step
from bifocal.text_encoders.recurrent import sru_recurrence


class SRULayerFunction(torch.autograd.Function):
    """SRU layer on packed sequences: x (N, n), weight (3 d, n) or with highway (4 d, n), bias (2 d)
    -> (N, d)."""

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
        dropped = (
            x if input_mask is None else _backend(x).multiply_steps_(x.clone(), input_mask, sizes)
        )
        # In mixed precision only the products have low precision: the recurrence accumulates
        # rounding errors.
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
            gradients[0].contiguous(),
            u,
            u[:, 3 * dim :] if projected else x,
            state,
            output_mask,
            ctx.sizes,
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
    """Return the module with the recurrence for the device of ``tensor``: fused kernels on a GPU
    with Triton."""
    if tensor.is_cuda and find_spec("triton") is not None:
        from bifocal.text_encoders.recurrent import sru_triton

        return sru_triton
    return sru_recurrence


class SRULayer(nn.Module):
    """One layer of simple recurrent units.

    Lei and Zhang, "Training RNNs as fast as CNNs", 2017 (first version), eq. (3)-(7); the gates
    depend only on the input::

        x~_t = W x_t        f_t = sigmoid(W_f x_t + b_f)        r_t = sigmoid(W_r x_t + b_r)
        c_t = f_t c_{t-1} + (1 - f_t) x~_t        h_t = r_t tanh(c_t) + (1 - r_t) x_t

    If n differs from d, the highway carries a fourth product, W_h x_t, instead of x_t. Dropout is
    variational, as in the authors' code: one mask per sentence for the input of the products and
    one for tanh(c), the same at every step.

    Args:
        input_dim: n, dimension of the input.
        dim: d, dimension of the output.
        input_dropout: dropout probability of the input of W, W_f, W_r (and W_h), but not of the
            highway.
        output_dropout: dropout probability of tanh(c).
    """

    def __init__(
        self, input_dim: int, dim: int, input_dropout: float = 0.0, output_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.dim = dim
        self.input_dropout = input_dropout
        self.output_dropout = output_dropout
        columns = 3 if input_dim == dim else 4
        bound = (3 / input_dim) ** 0.5
        self.weight = nn.Parameter(torch.empty(columns * dim, input_dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(2 * dim))

    def forward(self, x: Tensor, sizes: list[int] | None) -> Tensor:
        """Map packed x (N, n), ``sizes[t]`` rows in step t, to (N, d); without ``sizes``, padded
        (T, B, n) for ONNX."""
        if sizes is None:
            return self._forward_padded(x)
        input_mask = self._mask(x, sizes[0], x.shape[1], self.input_dropout)
        output_mask = self._mask(x, sizes[0], self.dim, self.output_dropout)
        output: Tensor = SRULayerFunction.apply(
            x, self.weight, self.bias, input_mask, output_mask, sizes
        )
        return output

    def _forward_padded(self, x: Tensor) -> Tensor:
        dim = self.dim
        u = linear(x, self.weight)
        candidate = u[..., :dim].contiguous()
        gates = torch.sigmoid(u[..., dim : 3 * dim] + self.bias)
        forget, reset = gates[..., :dim].contiguous(), gates[..., dim:]
        skip = u[..., 3 * dim :] if len(self.weight) > 3 * dim else x

        def step(state: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            state = inputs[0] + inputs[1] * (state - inputs[0])
            return state, state.clone()

        start = x.new_zeros(x.shape[1], dim)
        _, states = scan(step, start, (candidate, forget))
        output: Tensor = skip + reset * (torch.tanh(states) - skip)
        return output

    def _mask(self, like: Tensor, batch: int, dim: int, probability: float) -> Tensor | None:
        if not self.training or probability == 0:
            return None
        keep = 1 - probability
        return (
            torch.empty(batch, dim, dtype=like.dtype, device=like.device)
            .bernoulli_(keep)
            .div_(keep)
        )


class SRUEncoder(TextEncoder):
    """Stacked SRU layers; the embedding is the output at the last true token, l2-normalized.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (4); thesis 3.2.1. Sequences are
    packed, so that padding costs no time. Under ``torch.export`` (ONNX) they are padded, with
    dynamic batch and time.

    Args:
        input_dim: K, dimension of a word vector.
        dim: d, dimension of the embedding and of every layer.
        layers: number of SRU layers.
        dropout: dropout probability of the input of each layer's products, and between the layers.

    Shape:
        values (B, T, K), lengths (B,) in [1, T] -> (B, d).

    Example:
        >>> SRUEncoder(input_dim=5, dim=4, layers=2)(
        ...     torch.rand(2, 3, 5), torch.tensor([3, 1])
        ... ).shape
        torch.Size([2, 4])
    """

    def __init__(
        self, input_dim: int = 620, dim: int = 2400, layers: int = 4, dropout: float = 0.25
    ) -> None:
        super().__init__(input_dim, dim)
        self.layers = nn.ModuleList(
            SRULayer(
                input_dim if index == 0 else dim,
                dim,
                input_dropout=dropout,
                output_dropout=dropout if index < layers - 1 else 0.0,
            )
            for index in range(layers)
        )

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return normalize(last_true_step(self._forward_padded(values), lengths), dim=1)
        check_sequences(values, lengths, self.input_dim)
        order = lengths.argsort(descending=True, stable=True)
        packed = pack_padded_sequence(values[order], lengths[order].cpu(), batch_first=True)
        sizes = packed.batch_sizes.tolist()
        steps = packed.data
        for layer in self.layers:
            steps = layer(steps, sizes)
        starts = (packed.batch_sizes.cumsum(0) - packed.batch_sizes).to(order.device)
        last = starts[lengths[order] - 1] + torch.arange(len(order), device=order.device)
        return normalize(steps[last[order.argsort()]], dim=1)

    def _forward_padded(self, values: Tensor) -> Tensor:
        steps = values.transpose(0, 1).contiguous()
        for layer in self.layers:
            steps = layer(steps, None)
        return steps.transpose(0, 1)
