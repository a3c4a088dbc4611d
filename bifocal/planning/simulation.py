"""Run tensor code on shapes alone: count its operations, and the bytes that its tensors need at once."""

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.flop_counter import flop_registry

SMALL = 64
"""Numbers up to which a new tensor is real: constants such as means of channels, and drop rates of layers."""
MAX_REAL = 50_000_000
"""Integers or booleans up to which the result of an operation on floats is real."""
MAX_COMPUTED = 50_000_000
"""Numbers up to which floats are computed from real tensors."""
INDEXING = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_)
PACKING = torch.ops.aten._pack_padded_sequence
SCALAR = torch.ops.aten._local_scalar_dense
EIGEN, SVD = torch.ops.aten._linalg_eigh, torch.ops.aten._linalg_svd
SLOW = 25
"""Operations of a matrix product in the time of one operation of a decomposition."""


class Work(NamedTuple):
    """Work of a piece of code.

    Attributes:
        flops: floating-point operations of matrix products and convolutions; a multiply-add counts as 2.
        written: bytes that operations write.
        calls: operations, each a kernel on a GPU.
    """

    flops: float = 0.0
    written: float = 0.0
    calls: float = 0.0

    def times(self, factor: float) -> "Work":
        """Return the work of ``factor`` repetitions.

        Example:
            >>> Work(flops=2.0, written=4.0, calls=1.0).times(3).flops
            6.0
        """
        return Work(*(factor * value for value in self))

    def plus(self, other: "Work") -> "Work":
        """Return the work of both.

        Example:
            >>> Work(flops=2.0).plus(Work(flops=1.0)).flops
            3.0
        """
        return Work(*(mine + others for mine, others in zip(self, other, strict=True)))

    def minus(self, other: "Work") -> "Work":
        """Return the work that is not in ``other``."""
        return Work(*(mine - others for mine, others in zip(self, other, strict=True)))


class Simulation(TorchDispatchMode):
    """Mode in which float tensors have a shape and no numbers; integers and booleans are real.

    Code runs as it is: samplers, packed sequences and masks read real integers. A comparison of floats without numbers
    is true everywhere, and an index among them is 0. Autograd, autocast and optimizers work.

    Attributes:
        work: so far.
        live: bytes of the tensors that exist now.
        peak: maximum of ``live``.

    Example:
        >>> with Simulation() as simulation:
        ...     layer, x = nn.Linear(1000, 2000, bias=False), torch.rand(64, 1000)
        ...     layer(x).sum().backward()
        >>> simulation.work.flops == 2 * 2 * 64 * 1000 * 2000  # forward, and the gradient of the weight
        True
    """

    def __init__(self) -> None:
        cast(Any, super()).__init__()  # torch leaves it without types
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.work, self.live, self.peak = Work(), 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        output = self._run(func, args, kwargs, inputs)
        tree_map(self._track, output)
        if not _is_view(func):
            written = sum(value.nbytes for value in tree_flatten(output)[0] if isinstance(value, Tensor))
            self.work = Work(self.work.flops, self.work.written + written, self.work.calls + 1)
        return output

    def reset_peak(self) -> None:
        """Start a new maximum at the bytes that exist now."""
        self.peak = self.live

    def materialize(self, module: nn.Module) -> nn.Module:
        """Return a module that was built on the device "meta" with weights of this simulation, on the CPU."""
        for owner in module.modules():
            for name, parameter in list(owner.named_parameters(recurse=False)):
                weight = nn.Parameter(self._empty(parameter), requires_grad=parameter.requires_grad)
                setattr(owner, name, weight)
            for name, buffer in list(owner.named_buffers(recurse=False)):
                setattr(owner, name, self._empty(buffer))
        return module

    def _empty(self, like: Tensor) -> Tensor:
        if not like.is_floating_point():
            return torch.zeros(like.shape, dtype=like.dtype)
        with self.fake_mode:
            tensor = torch.empty(like.shape, dtype=like.dtype)
        self._track(tensor)
        return tensor

    def _run(self, func: Any, args: Any, kwargs: Any, inputs: list[Tensor]) -> Any:
        packet = func._overloadpacket
        has_numbers = not any(isinstance(value, FakeTensor) for value in inputs)
        if inputs and has_numbers and _is_small(inputs, kwargs):
            return func(*args, **kwargs)
        if packet is SCALAR:
            return 1.0
        if packet is PACKING:
            return self._packed(*args)
        if packet in INDEXING:
            args = (args[0], [part for index in args[1] for part in _integers(index)], *args[2:])
        with self.fake_mode:
            fake_args, fake_kwargs = tree_map(self._fake, (args, kwargs))
            output = func(*fake_args, **fake_kwargs)
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=output)
            self.work = self.work._replace(flops=self.work.flops + flops)
        if packet in (EIGEN, SVD):
            self._decompose(args[0], output)
        if not inputs and isinstance(output, Tensor) and (output.numel() <= SMALL or not output.is_floating_point()):
            return func(*args, **kwargs)
        is_in_place, changed = _changed_arguments(func, args, kwargs)
        return changed if is_in_place else tree_map(_numbered, output)

    def _decompose(self, matrix: Tensor, output: Any) -> None:
        """Count a decomposition: its operations, and the copy and the workspace of LAPACK's divide and conquer."""
        size, rank = matrix.numel(), min(matrix.shape)
        workspace = (size + 4 * rank**2) * matrix.element_size()
        results = sum(value.nbytes for value in tree_flatten(output)[0] if isinstance(value, Tensor))
        self.peak = max(self.peak, self.live + workspace + results)
        self.work = self.work._replace(flops=self.work.flops + SLOW * 10.0 * size * rank)

    def _packed(self, padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
        """Return the packed sequences, whose number of rows is not known without the lengths, and their sizes."""
        sizes = (lengths > torch.arange(int(lengths.max())).unsqueeze(1)).sum(dim=1)
        rows = int(lengths.sum())
        with self.fake_mode:
            return torch.empty(rows, *padded.shape[2:], dtype=padded.dtype), sizes

    def _fake(self, value: Any) -> Any:
        is_real = isinstance(value, Tensor) and not isinstance(value, FakeTensor)
        return self.fake_mode.from_tensor(value) if is_real else value

    def _track(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            return
        storage = value.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _is_view(func: Any) -> bool:
    """Whether an operation returns another view of its argument."""
    returns = func._schema.returns
    return bool(returns) and all(value.alias_info is not None and not value.alias_info.is_write for value in returns)


def _is_small(inputs: list[Tensor], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation on real tensors is carried out: it gives no floats, or few."""
    dtype = kwargs.get("dtype")
    gives_floats = dtype.is_floating_point if dtype is not None else any(t.is_floating_point() for t in inputs)
    return not gives_floats or sum(tensor.numel() for tensor in inputs) <= MAX_COMPUTED


def _integers(index: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the integer indices that are equivalent to an index, which may be a mask."""
    if index is None or index.dtype not in (torch.bool, torch.uint8):
        return (index,)
    return index.nonzero(as_tuple=True)


def _changed_arguments(func: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether an operation changes its arguments and returns only these or nothing, and its result then."""
    schema = func._schema
    if any(value.alias_info is None or not value.alias_info.is_write for value in schema.returns):
        return False, None
    changed = [
        kwargs.get(argument.name) if argument.kwarg_only else args[index]
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if not schema.returns:
        return bool(changed), None
    return True, changed[0] if len(schema.returns) == 1 else tuple(changed)


def _numbered(value: Any) -> Any:
    """Return real numbers for the integers and booleans that an operation computes from floats."""
    if not isinstance(value, FakeTensor) or value.is_floating_point() or value.numel() > MAX_REAL:
        return value
    return (
        torch.ones(value.shape, dtype=value.dtype)
        if value.dtype == torch.bool
        else torch.zeros(value.shape, dtype=value.dtype)
    )
