"""Patch tokens of timm's vision transformers as a map of cells."""

from math import isqrt

import torch
from torch import Tensor, nn


def is_transformer(network: nn.Module) -> bool:
    """Return whether the network puts class tokens or registers before the tokens of the patches."""
    return hasattr(network, "num_prefix_tokens")


def prefix_tokens(network: nn.Module) -> int:
    """Return the number of class tokens and registers before the tokens of the patches."""
    return int(getattr(network, "num_prefix_tokens", 0))


def token_map(network: nn.Module, tokens: Tensor, height: int, width: int) -> Tensor:
    """Return the normalized tokens (B, T, C) of the patches, without class tokens, as a map (B, C, rows, columns)."""
    patches = normalized(network, tokens[:, prefix_tokens(network) :])
    rows, columns = _grid_size(network, patches.shape[1], height, width)
    cells: Tensor = patches.transpose(1, 2).unflatten(2, (rows, columns))
    return cells


def normalized(network: nn.Module, tokens: Tensor) -> Tensor:
    """Apply the normalization that timm applies to the mean of the tokens, if the tokens (B, T, C) have had none."""
    norm, pooled_norm = getattr(network, "norm", None), getattr(network, "fc_norm", None)
    if not isinstance(norm, nn.Identity) or pooled_norm is None:
        return tokens
    normalized_tokens: Tensor = pooled_norm(tokens)
    return normalized_tokens


def class_and_mean(network: nn.Module, tokens: Tensor) -> Tensor:
    """Return the class token and the mean of the patches' tokens, concatenated: (B, T, C) -> (B, 2 C)."""
    if not prefix_tokens(network):
        raise ValueError(f"{type(network).__name__} has no class token: set pooling to network")
    tokens = normalized(network, tokens)
    return torch.cat([tokens[:, 0], tokens[:, prefix_tokens(network) :].mean(dim=1)], dim=1)


def _grid_size(network: nn.Module, tokens: int, height: int, width: int) -> tuple[int, int]:
    embedding = getattr(network, "patch_embed", None)
    if embedding is not None and hasattr(embedding, "dynamic_feat_size"):
        rows, columns = embedding.dynamic_feat_size((height, width))
        if rows * columns == tokens:
            return rows, columns
    if height == width and isqrt(tokens) ** 2 == tokens:
        return isqrt(tokens), isqrt(tokens)
    raise ValueError(
        f"{type(network).__name__} gives {tokens} tokens for {height} x {width} pixels, not a grid of patches: "
        "set stage to one of its stages, counted from 0"
    )
