"""Padded batches of sequences."""

import torch
from torch import Tensor


def check_sequences(values: Tensor, lengths: Tensor, input_dim: int) -> None:
    """Raise ``ValueError`` unless ``values`` (B, T, input_dim) holds sequences of ``lengths`` (B,), each in [1, T]."""
    if values.ndim != 3 or values.shape[2] != input_dim or lengths.shape != values.shape[:1]:
        raise ValueError(
            f"values {tuple(values.shape)} and lengths {tuple(lengths.shape)}, expected (B, T, {input_dim}) and (B,): "
            "set input_dim of the text encoder to the dim of the text store"
        )
    if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= values.shape[1]:
        raise ValueError(
            f"lengths lie in [{int(lengths.min())}, {int(lengths.max())}], expected [1, {values.shape[1]}]: "
            "encode an empty caption as one <unk> token, as TextStore does"
        )


def last_true_step(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Return row ``lengths - 1`` of each sequence: (B, T, d), (B,) -> (B, d)."""
    index = (lengths - 1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return outputs.gather(1, index)[:, 0]


def reverse(values: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each sequence up to its length; the padding stays at the end: (B, T, K), (B,) -> (B, T, K)."""
    time = torch.arange(values.shape[1], device=values.device)
    mirrored = lengths[:, None] - 1 - time
    index = torch.where(mirrored >= 0, mirrored, time)
    return values.gather(1, index[:, :, None].expand(-1, -1, values.shape[2]))
