"""Triton kernels against the PyTorch recurrence, in float64, on Triton's interpreter, without a
GPU."""

import os
import subprocess
import sys

import pytest

COMPARE = """
import torch
from bifocal.text_encoders.recurrent import sru_recurrence, sru_triton

sru_triton.BLOCK = 4  # several programs per sequence, the last one partly filled
torch.manual_seed(0)
dim, sizes = 6, [3, 3, 2, 1]
for columns in (3, 4):
    for masked in (False, True):
        u = torch.randn(sum(sizes), columns * dim, dtype=torch.float64)
        bias, grad = torch.randn(2 * dim, dtype=torch.float64), torch.randn(sum(sizes), dim, dtype=torch.float64)
        mask = torch.rand(sizes[0], dim, dtype=torch.float64).round() * 2 if masked else None
        x, results = torch.randn(sum(sizes), dim, dtype=torch.float64), []
        for backend in (sru_recurrence, sru_triton):
            u_copy = u.clone()
            skip = u_copy[:, 3 * dim:] if columns == 4 else x
            state, output = backend.recurrence_forward(u_copy, bias, skip, mask, sizes)
            gradients = backend.recurrence_backward(grad, u_copy, skip, state, mask, sizes)
            dropped = [] if mask is None else [backend.multiply_steps_(x.clone(), mask, sizes)]
            results.append((u_copy, state, output, *gradients, *dropped))
        for plain, fused in zip(*results, strict=True):
            torch.testing.assert_close(fused, plain)
"""


@pytest.mark.slow
def test_triton_kernels_equal_torch_recurrence() -> None:
    pytest.importorskip("triton", reason="Triton is not installed; its kernels run on GPUs only")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    result = subprocess.run(
        [sys.executable, "-c", COMPARE], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
