"""Several processes that train one model on one batch, as ``torchrun`` starts them.

Every rank encodes its part of the images and captions; the encodings are gathered, with their gradients, and every
rank computes the same loss on all of them, so that the negatives are those of the whole batch. Gradients are averaged
by hand, not by ``DistributedDataParallel``, which wants one ``forward`` per ``backward`` and parameters that neither
freeze nor thaw.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

# The others wait while rank 0 validates.
PATIENCE = timedelta(hours=2)


@dataclass(frozen=True)
class World:
    """The processes that train together.

    Attributes:
        rank: of this one, from 0; the one that writes is 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def present(cls) -> "World":
        """That of ``torch.distributed``; one process if it was not initialised."""
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def gather(self, own: Tensor) -> Tensor:
        """The rows of all ranks in their order; shorter ones are padded with zeros, in all axes but the first.

        The gradient of ``own`` is that of all ranks' losses together, for ``average_gradients`` to divide.
        """
        if self.size == 1:
            return own
        gathered: Tensor = _Gather.apply(own, self)
        return gathered

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Put the mean over the ranks into each tensor."""
        tensors = list(tensors)
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().flatten().float() for tensor in tensors])
        dist.all_reduce(flat)
        parts = (flat / self.size).split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """After ``backward``: the same gradients everywhere."""
        self.average(parameter.grad for parameter in parameters if parameter.grad is not None)

    def average_statistics(self, model: nn.Module) -> None:
        """After a step: the same statistics of batch normalisation everywhere."""
        norms = (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase))
        statistics = (part for norm in norms if norm.training for part in (norm.running_mean, norm.running_var))
        self.average(part for part in statistics if part is not None)

    def share(self, module: nn.Module) -> None:
        """Give all ranks the parameters and buffers of rank 0."""
        if self.size > 1:
            for tensor in (*module.parameters(), *module.buffers()):
                dist.broadcast(tensor.detach(), 0)

    def from_first(self, compute: Callable[[], Any]) -> Any:
        """What rank 0 computes, on all ranks."""
        if self.size == 1:
            return compute()
        found = [compute() if self.writes else None]
        dist.broadcast_object_list(found, 0)
        return found[0]

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether ``flag`` holds on any rank."""
        if self.size == 1:
            return flag
        found = torch.tensor(int(flag), device=device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def torchrun_world() -> Iterator[tuple[World, torch.device]]:
    """The processes that ``torchrun`` started, if it did, and the device of this one."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else None
    if device is not None:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield World(), device or torch.device("cpu")
        return
    dist.init_process_group("gloo" if device is None else "nccl", timeout=PATIENCE, device_id=device)
    try:
        yield World.present(), device or torch.device("cpu")
    finally:
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World) -> Tensor:
        shapes = [torch.empty(own.ndim, dtype=torch.int64, device=own.device) for _ in range(world.size)]
        dist.all_gather(shapes, torch.tensor(own.shape, device=own.device))
        largest = torch.stack(shapes).amax(dim=0).tolist()
        # Not every backend sends every type.
        sent = own.new_zeros(largest, dtype=torch.float32 if own.is_floating_point() else torch.int64)
        sent[tuple(slice(length) for length in own.shape)] = own
        received = [torch.empty_like(sent) for _ in range(world.size)]
        dist.all_gather(received, sent)
        rows = [int(shape[0]) for shape in shapes]
        ctx.size, ctx.shape, ctx.start = world.size, own.shape, sum(rows[: world.rank])
        return torch.cat([part[:count] for part, count in zip(received, rows, strict=True)]).to(own.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        start, shape = ctx.start, ctx.shape
        own = gradients[0][start : start + shape[0]]
        return ctx.size * own[(slice(None), *(slice(length) for length in shape[1:]))], None
