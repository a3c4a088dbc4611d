"""The loss of a batch and its gradients: at once, in micro-batches, or shared by several processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from bifocal.batch import Batch, Modality
from bifocal.features import RegionBatch
from bifocal.scores import Scores
from bifocal.text import Text
from bifocal.training.distributed import World

Precision = Literal["float32", "bfloat16"]
Encodings = tuple[Tensor, ...]


@runtime_checkable
class TwoTower(Protocol):
    """A model whose images and captions are encoded by themselves, and meet in ``score``.

    ``forward(batch)`` is ``score(embed_images(batch.regions), embed_captions(batch.text))``. An encoding is a tensor,
    or a tuple of them, with one row for each image or caption; what a row is padded with must not change its scores.
    """

    def embed_images(self, regions: RegionBatch) -> Tensor | Encodings: ...

    def embed_captions(self, text: Text) -> Tensor | Encodings: ...

    def score(self, images: Tensor | Encodings, captions: Tensor | Encodings) -> Scores: ...


def backward(
    model: nn.Module,
    loss: nn.Module,
    batch: Batch,
    *,
    precision: Precision,
    micro_batch: int | None,
    seed: int,
    world: World,
) -> Tensor:
    """The loss of the whole batch, with its gradients added to the parameters of ``model`` and ``loss``.

    In micro-batches the loss still sees all images against all captions: all are encoded without keeping what the
    gradient needs, the loss's gradient with respect to the encodings is taken, and each micro-batch is encoded a
    second time, with the same random numbers, to send it on to the parameters (Gao et al., "Scaling deep contrastive
    learning batch size under memory limited setup", 2021). Only batch normalisation sees the difference: its batch is
    the micro-batch, or the part of one process.

    Args:
        micro_batch: images, and captions, that are encoded at once; None for the whole batch.
        seed: of the random numbers of this step, where several processes share it.

    Raises:
        TypeError: the model cannot encode the parts of a batch by themselves.
    """
    cast = _casting(batch.matches.device.type, precision)
    if micro_batch is None and world.size == 1:
        with cast():
            scores = model(batch)
        value: Tensor = loss(scores.float(), batch.matches)
        value.backward()
        return value.detach()
    if not isinstance(model, TwoTower):
        raise TypeError(
            f"{type(model).__name__} is trained as one: micro-batches and several processes need a model with "
            "embed_images, embed_captions and score"
        )
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
    if world.size > 1:
        torch.manual_seed(seed + 1 + world.rank)
    images = _Part(model.embed_images, batch.regions, micro_batch, cast, norms)
    captions = _Part(model.embed_captions, batch.text, micro_batch, cast, norms)
    if world.size > 1:
        torch.manual_seed(seed)  # a loss that draws must draw the same everywhere
    with cast():
        scores = model.score(images.gathered(world), captions.gathered(world))
    value = loss(scores.float(), batch.matches)
    value.backward()
    images.send_on()
    captions.send_on()
    return value.detach()


def recompute_activations(model: nn.Module) -> None:
    """Gradient checkpointing in every timm backbone of ``model``: activations are computed again when they are needed.

    Raises:
        ValueError: there is no backbone that can do that.
    """
    able = [module for module in model.modules() if hasattr(module, "set_grad_checkpointing")]
    if not able:
        raise ValueError("gradient_checkpointing: the model has no backbone that trains; set it to false")
    for backbone in able:
        backbone.set_grad_checkpointing(True)  # type: ignore[operator]


class _Part:
    """The encodings of the images or captions of a batch, whose gradients are sent on when they are known."""

    def __init__(
        self,
        encode: Callable[..., Tensor | Encodings],
        half: RegionBatch | Text,
        micro_batch: int | None,
        cast: Callable[[], torch.autocast],
        norms: Sequence[nn.modules.batchnorm._NormBase],
    ) -> None:
        self.encode, self.cast = encode, cast
        self.chunks = [half] if micro_batch is None else list(_chunks(half, micro_batch))
        self.random: list[list[Tensor]] = []
        if len(self.chunks) == 1:
            self.encodings = self._encode(half)
            return
        encoded: list[Encodings] = []
        with torch.no_grad(), _statistics_kept(norms):
            for chunk in self.chunks:
                self.random.append(_random_state(half[0].device))
                encoded.append(self._encode(chunk))
        self.encodings = tuple(torch.cat(parts) for parts in zip(*encoded, strict=True))
        for encoding in self.encodings:
            encoding.requires_grad_(encoding.is_floating_point())

    def gathered(self, world: World) -> Tensor | Encodings:
        """Those of all ranks."""
        found = tuple(world.gather(encoding) for encoding in self.encodings)
        return found if len(found) > 1 else found[0]

    def send_on(self) -> None:
        """Encode the micro-batches again, and take the gradients of the encodings on to the parameters."""
        if len(self.chunks) == 1:
            return
        device = self.encodings[0].device
        present = _random_state(device)
        sizes = [len(chunk[0]) for chunk in self.chunks]
        gradients = [[None] * len(sizes) if e.grad is None else e.grad.split(sizes) for e in self.encodings]
        for chunk, state, *ours in zip(self.chunks, self.random, *gradients, strict=True):
            _set_random_state(device, state)
            pairs = zip(self._encode(chunk), ours, strict=True)
            known = [(found, grad) for found, grad in pairs if grad is not None and found.requires_grad]
            if known:
                torch.autograd.backward([found for found, _ in known], [grad for _, grad in known])
        _set_random_state(device, present)

    def _encode(self, half: RegionBatch | Text) -> Encodings:
        with self.cast():
            found = self.encode(half)
        return found if isinstance(found, tuple) else (found,)


def _casting(device: str, precision: Precision) -> Callable[[], torch.autocast]:
    # A cast that is kept from a pass without gradients would cut the next one's: a context for each.
    return lambda: torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")


def _chunks(half: Modality, size: int) -> Iterator[Modality]:
    # Of nearly equal size: batch normalisation can do nothing with a single one that is left over.
    count = -(-len(half[0]) // size)
    for parts in zip(*(part.tensor_split(count) for part in half), strict=True):
        yield type(half)(*parts)


@contextmanager
def _statistics_kept(norms: Sequence[nn.modules.batchnorm._NormBase]) -> Iterator[None]:
    """Inside, batch normalisation counts nothing: the second pass does."""
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, kept, strict=True):
            norm.momentum = momentum


def _random_state(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _set_random_state(device: torch.device, state: Sequence[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)
