"""Random draw of a few members of each group."""

import torch
from torch import Tensor


def draw_per_group(groups: Tensor, keys: Tensor, maximum: int) -> Tensor:
    """Return the rows of the ``maximum`` lowest keys of each group, by group, then by key.

    With random keys the members of a group are drawn uniformly, also if they are drawn in parts: the lowest keys of two
    parts, drawn again together, are the lowest keys of the whole.
    ``groups`` is (n,) int64, ``keys`` (n,).

    Example:
        >>> draw_per_group(torch.tensor([7, 3, 7, 7]), torch.tensor([0.9, 0.5, 0.1, 0.4]), maximum=2).tolist()
        [1, 2, 3]
    """
    order = keys.argsort(stable=True)
    order = order[groups[order].argsort(stable=True)]
    _, counts = groups[order].unique_consecutive(return_counts=True)
    number = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return order[number < maximum]
