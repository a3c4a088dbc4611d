"""Which weights of a pretrained transformer train; all others become buffers, which no phase can
thaw."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bifocal.text.transformer.network import Transformer

Tuning = Callable[[Transformer], None]
ADAPTED = ("query", "value", "q_lin", "v_lin", "q_proj", "v_proj", "q", "v", "Wqkv")
"""Names of the projections that LoRA adapts, in the attention of BERT, DistilBERT, MPNet,
ModernBERT and others."""


@dataclass(frozen=True)
class AllLayers:
    """Train all weights of the transformer.

    Example:
        >>> from bifocal.text_encoders import TransformerEncoder
        >>> all(
        ...     weight.requires_grad
        ...     for weight in TransformerEncoder(train=AllLayers()).parameters()
        ... )
        True
    """

    def __call__(self, transformer: Transformer) -> None:
        return


@dataclass(frozen=True)
class LastLayers:
    """Train the last layers of the transformer; the embeddings of the tokens and the layers below
    keep their weights.

    Args:
        layers: number of layers that train, from 0.

    Raises:
        ValueError: ``layers`` is negative, or the transformer has fewer layers.

    Example:
        >>> from bifocal.text_encoders import TransformerEncoder
        >>> names = {
        ...     name
        ...     for name, _ in TransformerEncoder(train=LastLayers(layers=1)).named_parameters()
        ... }
        >>> sorted(names)[:2]
        ['projection.bias', 'projection.weight']
        >>> all("layer.5." in name for name in names if name.startswith("transformer."))
        True
    """

    layers: int = 2

    def __call__(self, transformer: Transformer) -> None:
        if not 0 <= self.layers <= transformer.layers:
            raise ValueError(f"layers is {self.layers}: the transformer has {transformer.layers}")
        blocks = transformer.blocks[transformer.layers - self.layers :]
        freeze(transformer, {weight for block in blocks for weight in block.parameters()})


@dataclass(frozen=True)
class LoRA:
    """Train a low-rank change of the query and value projections; all weights of the transformer
    stay as they are.

    Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022, eq. (3): W x +
    (alpha / rank) B A x. A is random, B zero, so the training starts from the pretrained network
    (section 4.1); queries and values are adapted (section 4.2). An exported graph holds W + (alpha
    / rank) B A.

    Args:
        rank: rows of A.
        alpha: scale of the change, divided by the rank.

    Raises:
        ValueError: ``rank`` is not positive, or the transformer has no such projections.

    Example:
        >>> from bifocal.text_encoders import TransformerEncoder
        >>> encoder = TransformerEncoder(dim=8, train=LoRA(rank=2))
        >>> sum(w.numel() for n, w in encoder.named_parameters() if n.startswith("transformer."))
        18432
    """

    rank: int = 8
    alpha: float = 16.0

    def __call__(self, transformer: Transformer) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}: expected 1 or more")
        places = [
            (owner, name)
            for owner in transformer.modules()
            for name, child in owner.named_children()
            if name in ADAPTED and isinstance(child, nn.Linear)
        ]
        if not places:
            kind = type(transformer.network).__name__
            raise ValueError(
                f"LoRA adapts {', '.join(ADAPTED)}, and {kind} has none: train AllLayers or "
                "LastLayers"
            )
        freeze(transformer, set())
        for owner, name in places:
            setattr(owner, name, AdaptedLinear(getattr(owner, name), self.rank, self.alpha))


class AdaptedLinear(nn.Module):
    """A linear layer with a trained change of low rank: W x + b + (alpha / rank) B A x."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer, self.scale = layer, alpha / rank
        weight = layer.weight
        self.a = nn.Parameter(
            torch.randn(rank, layer.in_features, device=weight.device) / layer.in_features**0.5
        )
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank, device=weight.device))

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = linear(linear(x, self.a), self.b)
        output: Tensor = self.layer(x)
        return output + self.scale * change

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return the linear layer with the weights W + (alpha / rank) B A."""
        self.layer.weight += self.scale * self.b @ self.a
        return self.layer


def freeze(module: nn.Module, trained: set[nn.Parameter]) -> None:
    """Turn all parameters of a module that are not in ``trained`` into buffers."""
    for owner in module.modules():
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if parameter not in trained:
                delattr(owner, name)
                owner.register_buffer(name, parameter.detach())


def merge_adapters(module: nn.Module) -> None:
    """Replace every ``AdaptedLinear`` in a module by its merged linear layer."""
    for owner in list(module.modules()):
        for name, child in list(owner.named_children()):
            if isinstance(child, AdaptedLinear):
                setattr(owner, name, child.merged())
