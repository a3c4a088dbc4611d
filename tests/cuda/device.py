"""Device of the tests in this folder, and the error of its results."""

import os
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

DEVICE = torch.device(os.environ.get("BIFOCAL_TEST_DEVICE", "cuda"))

needs_device = pytest.mark.skipif(
    DEVICE.type == "cuda" and not torch.cuda.is_available(),
    reason="no CUDA device; BIFOCAL_TEST_DEVICE=cpu runs these tests without one",
)


def relative_error(actual: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """Return the l2 norm of the differences divided by the l2 norm of ``expected``, over all
    numbers."""
    found, true = (
        torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors])
        for tensors in (actual, expected)
    )
    return float((found - true).norm() / true.norm())
