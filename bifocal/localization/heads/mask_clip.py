"""Pointing head of a contrastive image tower: vectors of patches in the joint space, without
training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from bifocal.registry import CheckedByConstruction


@dataclass(frozen=True)
class MaskCLIP(CheckedByConstruction):
    """Cosines of patches with the vector of a phrase by the text tower of a contrastive model.

    Zhou, Loy and Dai, "Extract free dense labels from CLIP", ECCV 2022, section 3.2: the attention
    pooling of their eq. (1) without its weights, value and output projection as convolutions of 1 x
    1. As in the authors' code for vision transformers, the residual connections and the MLP of the
    last block remain. The last attention of the image tower, a vision transformer of open_clip,
    keeps the values of each patch, without queries and keys::

        attend(x) = (x W_v + b_v) W_o + b_o
        x         = tokens + attend(LayerNorm(tokens))     tokens: before the last block
        y         = x + MLP(LayerNorm(x))
        patches   = unit(LayerNorm(y) projection)          without the class token
        map       = patches unit(text(phrase) / |..| + text("a photo of a {phrase}") / |..|)

    Maps are standardized, smoothed, and have a prior of the center as ``ClassMixture``, whose
    defaults they keep. Untested on published weights. There is no probability of presence.

    Args:
        size: side of the square image in pixels, a multiple of the patch; None for the size of the
            weights. Other sizes interpolate the positions.
        sigma: standard deviation of the Gaussian that smooths a map, in cells.
        center: weight of the prior of the center, in standard deviations at the middle of an edge.

    Example:
        >>> MaskCLIP(size=336).size
        336
    """

    size: int | None = None
    sigma: float = 0.8
    center: float = 0.25

    def __post_init__(self) -> None:
        if (self.size is not None and self.size < 1) or self.sigma < 0 or self.center < 0:
            raise ValueError(
                f"size is {self.size}, sigma {self.sigma} and center {self.center}: expected a "
                "positive size, and 0 or more"
            )

    def patches(self, tower: Any, images: Tensor) -> Tensor:
        """Return unit vectors (B, rows, columns, d) of patches from normalized images (B, 3, H,
        W)."""
        tokens = tower._embeds(images)
        *blocks, last = tower.transformer.resblocks
        for block in blocks:
            tokens = block(tokens)
        tokens = tokens + last.ls_1(_values(last.attn, last.ln_1(tokens)))
        tokens = tokens + last.ls_2(last.mlp(last.ln_2(tokens)))
        vectors = normalize(tower.ln_post(tokens)[:, 1:] @ tower.proj, dim=2)
        return cast(Tensor, vectors.unflatten(1, tuple(tower.grid_size)))

    def values(self) -> Mapping[str, Any]:
        """Return the numbers that ``bifocal.onnx.pointing.ContrastivePointer`` reads."""
        return {"sigma": self.sigma, "center": self.center}


def _values(attention: nn.MultiheadAttention, tokens: Tensor) -> Tensor:
    """Return the projected values (B, T, C) of an attention for its normalized tokens (B, T, C)."""
    assert attention.in_proj_bias is not None  # as open_clip builds it
    width = 2 * attention.embed_dim
    values = linear(tokens, attention.in_proj_weight[width:], attention.in_proj_bias[width:])
    merged: Tensor = attention.out_proj(values)
    return merged
