"""Base class of the heads of contrastive image towers: vectors of patches in the joint space, without training."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.backbones.timm.backbone import TimmBackbone
from bifocal.registry import CheckedByConstruction


@dataclass(frozen=True)
class ContrastiveHead(CheckedByConstruction, ABC):
    """Head of a contrastive model: cosines of patches with the vector of a phrase by the text tower.

    The last block of the image tower, a vision transformer of open_clip, computes other attention than in training::

        x       = tokens + attend(LayerNorm(tokens))     tokens: before the last block
        y       = x + MLP(LayerNorm(x))
        patches = unit(LayerNorm(y) projection)          without the class token
        map     = patches unit(text(phrase) / |..| + text("a photo of a {phrase}") / |..|)

    Maps are standardized, smoothed, and have a prior of the center as ``ClassMixture``, whose defaults they keep.
    Weights of such a model were not at hand: the quality is not measured, and there is no probability of presence.

    Args:
        size: side of the square image in pixels, a multiple of the patch; None for the size of the weights. Other sizes
            interpolate the positions.
        sigma: standard deviation of the Gaussian that smooths a map, in cells.
        center: weight of the prior of the center, in standard deviations at the middle of an edge.
    """

    size: int | None = None
    sigma: float = 0.8
    center: float = 0.25

    def __post_init__(self) -> None:
        if (self.size is not None and self.size < 1) or self.sigma < 0 or self.center < 0:
            raise ValueError(
                f"size is {self.size}, sigma {self.sigma} and center {self.center}: expected a positive size, and 0 or "
                "more"
            )

    def proxy(self) -> TimmBackbone | None:
        """Return a second network, whose last map of the image is an argument of ``patches``; None without one."""
        return None

    @abstractmethod
    def attend(self, attention: nn.MultiheadAttention, tokens: Tensor) -> Tensor:
        """Return the output (B, T, C) of the last attention for its normalized tokens (B, T, C)."""

    def patches(self, tower: Any, images: Tensor, cells: Tensor | None = None) -> Tensor:
        """Return unit vectors (B, rows, columns, d) of patches from normalized images (B, 3, H, W)."""
        tokens, last = before_last_block(tower, images)
        tokens = tokens + last.ls_1(self.attend(last.attn, last.ln_1(tokens)))
        tokens = tokens + last.ls_2(last.mlp(last.ln_2(tokens)))
        vectors = normalize(tower.ln_post(tokens)[:, 1:] @ tower.proj, dim=2)
        return cast(Tensor, vectors.unflatten(1, tuple(tower.grid_size)))

    def values(self) -> Mapping[str, Any]:
        """Return the numbers that ``bifocal.serving.pointing.ContrastivePointer`` reads."""
        return {"sigma": self.sigma, "center": self.center}


def before_last_block(tower: Any, images: Tensor) -> tuple[Tensor, Any]:
    """Return the tokens (B, T, C) of normalized images before the last block, and this block."""
    tokens = tower._embeds(images)
    *blocks, last = tower.transformer.resblocks
    for block in blocks:
        tokens = block(tokens)
    return tokens, last


def projections(attention: nn.MultiheadAttention, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values (B, heads, T, C / heads) of tokens (B, T, C)."""
    assert attention.in_proj_bias is not None  # as open_clip builds it
    joined = tokens @ attention.in_proj_weight.T + attention.in_proj_bias
    parts = (part.unflatten(2, (attention.num_heads, -1)).transpose(1, 2) for part in joined.chunk(3, dim=2))
    queries, keys, values = parts
    return queries, keys, values


def merge_heads(attention: nn.MultiheadAttention, values: Tensor) -> Tensor:
    """Return the output (B, T, C) of the heads' values (B, heads, T, C / heads)."""
    merged: Tensor = attention.out_proj(values.transpose(1, 2).flatten(2))
    return merged
