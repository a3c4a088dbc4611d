"""Loss of a batch and its gradients: in one pass, in micro-batches, or shared by several
processes."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.models.batch import Batch, Modality
from bifocal.scores import Scores
from bifocal.text import TextBatch
from bifocal.training.distributed import World, batch_norms
from bifocal.training.precision import Precision, autocast_for

Encodings = tuple[Tensor, ...]


@runtime_checkable
class TwoTower(Protocol):
    """A model that encodes images and captions separately and compares them in ``score``.

    An encoding is a tensor or a tuple of tensors with one row per image or caption; padding of a
    row must not change its scores.
    """

    def embed_images(self, regions: RegionBatch) -> Tensor | Encodings: ...

    def embed_captions(self, text: TextBatch) -> Tensor | Encodings: ...

    def score(self, images: Tensor | Encodings, captions: Tensor | Encodings) -> Scores: ...


def backward(
    model: nn.Module,
    loss: nn.Module,
    batch: Batch,
    *,
    precision: Precision,
    micro_batch_size: int | None,
    seed: int,
    world: World,
) -> Tensor:
    """Return the loss of a batch, and add its gradients to the parameters of ``model`` and
    ``loss``.

    Micro-batches are encoded without activations, then again, with the same random numbers, to
    propagate the gradient of the loss of the whole batch (Gao et al., "Scaling deep contrastive
    learning batch size under memory limited setup", 2021). Only batch norm differs: it normalizes a
    micro-batch, or the part of one process.
    """
    cast = autocast_for(batch.matches.device.type, precision)
    if micro_batch_size is None and world.size == 1:
        with cast():
            scores = model(batch)
        value = checked_loss(loss, scores.float(), batch.matches)
        value.backward()
        return value.detach()
    if not isinstance(model, TwoTower):
        raise TypeError(
            f"{type(model).__name__} encodes images and captions together: micro-batches and "
            "several processes need a model with embed_images, embed_captions and score"
        )
    norms = batch_norms(model)
    if world.size > 1:
        torch.manual_seed(seed + 1 + world.rank)
    images = CachedEncodings(model.embed_images, batch.regions, micro_batch_size, cast, norms)
    captions = CachedEncodings(model.embed_captions, batch.text, micro_batch_size, cast, norms)
    if world.size > 1:
        torch.manual_seed(seed)  # a loss that draws random numbers must draw the same on all ranks
    with cast():
        scores = model.score(images.all_gathered(world), captions.all_gathered(world))
    value = checked_loss(loss, scores.float(), batch.matches)
    value.backward()
    images.backpropagate()
    captions.backpropagate()
    return value.detach()


def checked_loss(loss: nn.Module, scores: Scores, matches: Tensor) -> Tensor:
    """Return ``loss(scores, matches)``.

    Raises:
        ValueError: it is not one number, or a loss that is not of this package fails; the message
            has the file, the line and the shapes.
    """
    shapes = f"scores {tuple(scores.cross.shape)}, matches {tuple(matches.shape)}"
    code = type(loss).forward.__code__
    try:
        value = loss(scores, matches)
    except Exception as error:
        places = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == code.co_filename
        ]
        if type(loss).__module__.startswith("bifocal.") or not places:
            raise
        raise ValueError(
            f"{code.co_filename}, line {places[-1]}: {type(error).__name__}: {error}; {shapes}"
        ) from error
    if not isinstance(value, Tensor) or value.shape:
        returned = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"{code.co_filename}, line {code.co_firstlineno}: {type(loss).__name__} returns "
            f"{returned} for {shapes}: expected one number, such as the mean over the matches"
        )
    return value


def recompute_activations(model: nn.Module) -> None:
    """Turn on gradient checkpointing in every timm backbone of ``model``: less memory, more
    time."""
    switches = [getattr(module, "set_grad_checkpointing", None) for module in model.modules()]
    if not any(switches):
        raise ValueError(
            "gradient checkpointing: the model has no backbone that trains; turn it off"
        )
    for enable in switches:
        if enable is not None:
            enable(True)


class CachedEncodings:
    """Encodings of the images or captions of a batch; ``backpropagate`` passes their gradients to
    the parameters.

    ``cast`` makes a new context of the precision; ``norms`` are the batch normalizations, updated
    once per row.
    """

    def __init__(
        self,
        encode: Callable[..., Tensor | Encodings],
        inputs: RegionBatch | TextBatch,
        micro_batch_size: int | None,
        cast: Callable[[], torch.autocast],
        norms: Sequence[nn.modules.batchnorm._NormBase],
    ) -> None:
        self.encode, self.cast = encode, cast
        self.chunks = (
            [inputs] if micro_batch_size is None else list(_chunks(inputs, micro_batch_size))
        )
        self.random_states: list[list[Tensor]] = []
        if len(self.chunks) == 1:
            self.encodings = self._encode(inputs)
            return
        encoded: list[Encodings] = []
        with torch.no_grad(), _frozen_statistics(norms):
            for chunk in self.chunks:
                self.random_states.append(_random_state(inputs[0].device))
                encoded.append(self._encode(chunk))
        self.encodings = tuple(torch.cat(parts) for parts in zip(*encoded, strict=True))
        for encoding in self.encodings:
            encoding.requires_grad_(encoding.is_floating_point())

    def all_gathered(self, world: World) -> Tensor | Encodings:
        gathered = tuple(world.gather(encoding) for encoding in self.encodings)
        return gathered if len(gathered) > 1 else gathered[0]

    def backpropagate(self) -> None:
        """Encode the micro-batches again and propagate the gradients of the encodings to the
        parameters."""
        if len(self.chunks) == 1:
            return
        device = self.encodings[0].device
        current = _random_state(device)
        sizes = [len(chunk[0]) for chunk in self.chunks]
        gradients = [
            [None] * len(sizes) if e.grad is None else e.grad.split(sizes) for e in self.encodings
        ]
        for chunk, state, *chunk_gradients in zip(
            self.chunks, self.random_states, *gradients, strict=True
        ):
            _set_random_state(device, state)
            pairs = zip(self._encode(chunk), chunk_gradients, strict=True)
            known = [
                (encoding, grad)
                for encoding, grad in pairs
                if grad is not None and encoding.requires_grad
            ]
            if known:
                torch.autograd.backward(
                    [encoding for encoding, _ in known], [grad for _, grad in known]
                )
        _set_random_state(device, current)

    def _encode(self, inputs: RegionBatch | TextBatch) -> Encodings:
        with self.cast():
            encodings = self.encode(inputs)
        return encodings if isinstance(encodings, tuple) else (encodings,)


def _chunks(inputs: Modality, size: int) -> Iterator[Modality]:
    # Split evenly: batch norm fails on a last chunk of one row.
    count = -(-len(inputs[0]) // size)
    for tensors in zip(*(tensor.tensor_split(count) for tensor in inputs), strict=True):
        yield type(inputs)(*tensors)


@contextmanager
def _frozen_statistics(norms: Sequence[nn.modules.batchnorm._NormBase]) -> Iterator[None]:
    """Keep the running statistics of batch norm: the second pass updates them."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def _random_state(device: torch.device) -> list[Tensor]:
    return [
        torch.get_rng_state(),
        *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else []),
    ]


def _set_random_state(device: torch.device, state: Sequence[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)
