"""Sorting rows, and sums that decay along them: the two steps of every O(n log n) sorter."""

import torch
from torch import Tensor


def sort_rows(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of every row in ascending order, and where each came from.

    Shape:
        scores (rows, n) float32 or float64 -> (rows, n), (rows, n) int64.
    """
    if scores.device.type != "cpu" or scores.dtype != torch.float32:
        ordered, order = scores.sort(dim=-1)
        return ordered, order
    # A float32 and its place, packed into one integer that sorts alike: NumPy sorts those with vector instructions,
    # several times faster than torch sorts pairs.
    bits = scores.contiguous().view(torch.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32
    keys |= torch.arange(scores.shape[-1])
    keys.numpy().sort(axis=-1)
    order = keys & 0xFFFFFFFF
    return scores.gather(-1, order), order


def decayed_sums(values: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Sums along a row in which every value fades with its distance, from the left and from the right.

    left_i = sum over j <= i of values_j exp(-(steps_j + ... + steps_(i-1))), and right_i the same over j >= i. The sums
    are doubled in reach log2(n) times, with decays that are at most 1: nothing overflows, however far a row extends, as
    it does in a cumulative sum of exponentials.

    Shape:
        values (..., n), steps (..., n - 1), not negative, -> left (..., n), right (..., n).
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
