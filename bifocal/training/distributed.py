"""Data-parallel training: several processes, started by ``torchrun``, share every batch.

Every process encodes its part, and computes the same loss on the gathered encodings of all.
Gradients are averaged by
hand: micro-batches and freezing break the assumptions of ``DistributedDataParallel``.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bifocal.training.waiting import LIMIT, Exchanges

identity: dict[str, str] = {}
"""What must be equal in all processes, such as hashes of inputs and code, by name."""
PROBLEM = "problem"
"""Key of ``identity``: why a process cannot train."""
_exchanges: Exchanges | None = None


@dataclass(frozen=True)
class World:
    """The processes that train together; only rank 0, the main process, writes files and log
    lines."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> "World":
        """Return the world of ``torch.distributed``, or one process if it is not initialized."""
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows of all ranks in rank order, padded with zeros; the gradient is
        summed over the ranks."""
        if self.size == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, self)
        return gathered

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over the ranks."""
        tensors = list(tensors)
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().flatten().float() for tensor in tensors])
        with _exchange():
            dist.all_reduce(flat, group=_steps())
        means = (flat / self.size).split([tensor.numel() for tensor in tensors])
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.detach().copy_(mean.view_as(tensor))

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients over the ranks; call it after ``backward``."""
        self.average(parameter.grad for parameter in parameters if parameter.grad is not None)

    def average_statistics(self, model: nn.Module) -> None:
        """Average the running statistics of batch norm over the ranks; call it after a step."""
        statistics = (
            tensor
            for norm in batch_norms(model)
            if norm.training
            for tensor in (norm.running_mean, norm.running_var)
        )
        self.average(tensor for tensor in statistics if tensor is not None)

    def broadcast_parameters(self, module: nn.Module) -> None:
        """Copy the parameters and buffers of rank 0 to all ranks."""
        if self.size > 1:
            with _exchange():
                for tensor in (*module.parameters(), *module.buffers()):
                    dist.broadcast(tensor.detach(), 0)

    def broadcast_from_main(self, compute: Callable[[], Any]) -> Any:
        """Call ``compute`` only on rank 0, and return its result on all ranks."""
        if self.size == 1:
            return compute()
        results = [compute() if self.is_main else None]
        with _exchange():
            dist.broadcast_object_list(results, 0)
        return results[0]

    def broadcast_tensors(
        self, read: Callable[[], tuple[Mapping[str, Tensor], dict[str, Any]]]
    ) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Call ``read`` only on rank 0, and return its tensors, on the CPU, and its notes on all
        ranks."""
        if self.size == 1:
            return read()
        tensors, notes = read() if self.is_main else ({}, {})
        layout = [(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()]
        layout, notes = self.broadcast_from_main(lambda: (layout, notes))
        device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        received = {}
        for name, shape, dtype in layout:
            tensor = (
                tensors[name].to(device)
                if self.is_main
                else torch.empty(shape, dtype=dtype, device=device)
            )
            # As bytes: not every backend can send every dtype.
            with _exchange():
                dist.broadcast(tensor.view(-1).view(torch.uint8), 0)
            received[name] = tensor.cpu()
        return received, notes

    def any_rank(self, flag: bool, device: torch.device) -> bool:
        """Whether ``flag`` is true on at least one rank."""
        if self.size == 1:
            return flag
        flags = torch.tensor(int(flag), device=device)
        with _exchange():
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=_steps())
        return bool(flags)

    def barrier(self) -> None:
        """Wait until all ranks arrive."""
        if self.size > 1:
            with _exchange():
                dist.barrier()

    def check_equal(self, own: Mapping[str, str]) -> None:
        """Raise ``ValueError`` on all ranks if one has a problem, or another value than rank 0."""
        if self.size == 1:
            return
        every: list[Mapping[str, str]] = [{}] * self.size
        with _exchange():
            dist.all_gather_object(every, dict(own))
        for rank, other in enumerate(every):
            if other.get(PROBLEM):
                raise ValueError(f"rank {rank} of the training: {other[PROBLEM]}")
            for name in sorted({*every[0], *other}):
                first, value = (values.get(name, "none") for values in (every[0], other))
                if first != value:
                    raise ValueError(
                        f"{name} of rank {rank} is {value}, of rank 0 {first}: all processes need "
                        "the same inputs, code and packages; copy those of rank 0"
                    )


@contextmanager
def torchrun_world() -> Iterator[tuple[World, torch.device]]:
    """Join the processes of ``torchrun``, if it started this one; yield the world and the device of
    this process."""
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        if torch.cuda.is_available()
        else None
    )
    if device is not None:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield World(), device or torch.device("cpu")
        return
    global _exchanges
    dist.init_process_group("gloo" if device is None else "nccl", timeout=LIMIT, device_id=device)
    try:
        _exchanges = Exchanges()
        World.current().check_equal({"torch": torch.__version__, **identity})
        yield World.current(), device or torch.device("cpu")
    finally:
        if _exchanges is not None:
            _exchanges.end()
        _exchanges = None
        dist.destroy_process_group()


def batch_norms(model: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """Return the batch normalizations of ``model``."""
    return [
        module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)
    ]


def _exchange() -> AbstractContextManager[None]:
    return nullcontext() if _exchanges is None else _exchanges.running()


def _steps() -> Any:
    return None if _exchanges is None else _exchanges.steps


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World) -> Tensor:
        shapes = [
            torch.empty(rows.ndim, dtype=torch.int64, device=rows.device) for _ in range(world.size)
        ]
        with _exchange():
            dist.all_gather(shapes, torch.tensor(rows.shape, device=rows.device), group=_steps())
        largest = torch.stack(shapes).amax(dim=0).tolist()
        # Not every backend can send every dtype.
        sent = rows.new_zeros(
            largest, dtype=torch.float32 if rows.is_floating_point() else torch.int64
        )
        sent[tuple(slice(length) for length in rows.shape)] = rows
        received = [torch.empty_like(sent) for _ in range(world.size)]
        with _exchange():
            dist.all_gather(received, sent, group=_steps())
        counts = [int(shape[0]) for shape in shapes]
        ctx.size, ctx.shape, ctx.start = world.size, rows.shape, sum(counts[: world.rank])
        return torch.cat([part[:count] for part, count in zip(received, counts, strict=True)]).to(
            rows.dtype
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        start, shape = ctx.start, ctx.shape
        gradient = gradients[0][start : start + shape[0]]
        return ctx.size * gradient[(slice(None), *(slice(length) for length in shape[1:]))], None
