"""Pointing head of ProxyCLIP."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from bifocal.backbones.state import load_library_weights, load_weights_file
from bifocal.backbones.timm.backbone import TimmBackbone
from bifocal.backbones.timm.config import BackboneConfig
from bifocal.localization.heads.contrastive import ContrastiveHead, before_last_block, merge_heads, projections


@dataclass(frozen=True)
class ProxyCLIP(ContrastiveHead):
    """Attention by the similarity of the cells f of a second network, over the values of the last attention.

    Lan, Chen, Ke, Wang, Feng and Zhang, "ProxyCLIP: Proxy attention improves CLIP for open-vocabulary segmentation",
    ECCV 2024, section 3.3. The values of the patches are resized to the cells. As in the authors' code, the last block
    has neither its residual connections nor its MLP::

        a_ij    = gamma (cos(f_i, f_j) - beta mean(cos))     minus infinity where it is negative
        attend  = (softmax(a) v) W_o + b_o
        patches = unit(LayerNorm(attend) projection)

    Here a cell always attends to itself, so that no row of the softmax is empty. See ``ContrastiveHead`` for the other
    arguments.

    Args:
        backbone: timm model whose last map has the cells, for images of its own size; the paper's is DINO.
        path: safetensors file with its weights; by default they are downloaded.
        model_arguments: further keyword arguments of ``timm.create_model``.
        beta: factor of the mean similarity.
        gamma: factor of the remaining similarity.

    Raises:
        ValueError: a value is out of range.

    Example:
        >>> ProxyCLIP(path="dino.safetensors").beta
        1.2
    """

    backbone: str = "vit_base_patch8_224.dino"
    path: str | Path | None = None
    model_arguments: Mapping[str, Any] | None = None
    beta: float = 1.2
    gamma: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma <= 0:
            raise ValueError(f"gamma is {self.gamma}: expected a positive factor")

    def proxy(self) -> TimmBackbone:
        """Return the second network with its weights."""
        arguments = None if self.model_arguments is None else dict(self.model_arguments)
        network = TimmBackbone(BackboneConfig(self.backbone, model_arguments=arguments))
        if self.path is None:
            load_library_weights(network)
        else:
            load_weights_file(network, Path(self.path))
        return network

    def attend(self, attention: nn.MultiheadAttention, tokens: Tensor, cells: Tensor | None = None) -> Tensor:
        """Return the values (B, h w, C) that the cells (B, D, h, w) attend to; see ``ContrastiveHead``."""
        assert cells is not None
        _, _, values = projections(attention, tokens)
        count, side = values.shape[1], int((values.shape[2] - 1) ** 0.5)
        maps = values[:, :, 1:].flatten(0, 1).transpose(1, 2).unflatten(2, (side, side))
        resized = interpolate(maps, tuple(cells.shape[2:]), mode="bilinear", align_corners=False)
        values = resized.flatten(2).transpose(1, 2).unflatten(0, (-1, count))
        units = normalize(cells.flatten(2), dim=1)
        similarity = units.transpose(1, 2) @ units
        similarity = self.gamma * (similarity - self.beta * similarity.mean(dim=(1, 2), keepdim=True))
        hidden = (similarity < 0) & ~torch.eye(units.shape[2], dtype=torch.bool, device=units.device)
        weights = similarity.masked_fill(hidden, -torch.inf).softmax(dim=2)
        return merge_heads(attention, weights.unsqueeze(1) @ values)

    def patches(self, tower: Any, images: Tensor, cells: Tensor | None = None) -> Tensor:
        """Return unit vectors (B, h, w, d) from normalized images (B, 3, H, W) and cells (B, D, h, w)."""
        assert cells is not None
        tokens, last = before_last_block(tower, images)
        attended = self.attend(last.attn, last.ln_1(tokens), cells)
        vectors = normalize(tower.ln_post(attended) @ tower.proj, dim=2)
        return cast(Tensor, vectors.unflatten(1, tuple(cells.shape[2:])))
