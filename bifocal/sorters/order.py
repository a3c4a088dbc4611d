"""Sorted rows and exponentially decaying sums along them: the two steps of the O(n log n) sorters."""

import torch
from torch import Tensor


def sort_rows(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores (rows, n) of every row in ascending order, and their indices in the row.

    Example:
        >>> sort_rows(torch.tensor([[0.3, 0.1, 0.2]]))
        (tensor([[0.1000, 0.2000, 0.3000]]), tensor([[1, 2, 0]]))
    """
    if scores.device.type != "cpu" or scores.dtype != torch.float32:
        ordered, order = scores.sort(dim=-1)
        return ordered, order
    # Pack a float32 and its index into one int64 with the same order: NumPy sorts integers with vector instructions,
    # several times faster than torch sorts values with indices.
    bits = scores.contiguous().view(torch.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32
    keys |= torch.arange(scores.shape[-1])
    keys.numpy().sort(axis=-1)
    order = keys & 0xFFFFFFFF
    return scores.gather(-1, order), order


def decayed_sums(values: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums along a row in which values decay with their distance, from the left and from the right.

    left_i = sum over j <= i of values_j exp(-(steps_j + ... + steps_(i-1))), and right_i is the same sum over j >= i,
    for values (..., n) and steps (..., n - 1), not negative. The reach of the sums doubles log2(n) times. All decays
    are at most 1, so long rows do not overflow, unlike a cumulative sum of exponentials.
    """
    left, right = values.clone(), values.clone()
    decay = torch.exp(-steps)
    reach = 1
    while reach < values.shape[-1]:
        left[..., reach:] += decay * left[..., :-reach]
        right[..., :-reach] += decay * right[..., reach:]
        decay = decay[..., :-reach] * decay[..., reach:]
        reach *= 2
    return left, right
