"""The contract of samplers."""

from collections.abc import Callable, Sequence

from torch import Tensor

Sampler = Callable[[int], Sequence[Tensor]]
"""``sampler(epoch)`` returns the rows of each batch of an epoch, counted from 0, in order.

It is called once, when the epoch begins, so it may mine with the current model. A resumed epoch keeps its batches.
"""
