"""The Triton kernels against the plain recurrence, in float64, by Triton's interpreter: no GPU is needed."""

import os
import subprocess
import sys

import pytest

COMPARE = """
import torch
from bifocal.text_encoders import sru_recurrence, sru_triton

sru_triton.BLOCK = 4  # several programs for one sequence, the last not full
torch.manual_seed(0)
dim, sizes = 6, [3, 3, 2, 1]
for columns in (3, 4):
    for masked in (False, True):
        u = torch.randn(sum(sizes), columns * dim, dtype=torch.float64)
        bias, grad = torch.randn(2 * dim, dtype=torch.float64), torch.randn(sum(sizes), dim, dtype=torch.float64)
        mask = torch.rand(sizes[0], dim, dtype=torch.float64).round() * 2 if masked else None
        x, found = torch.randn(sum(sizes), dim, dtype=torch.float64), []
        for backend in (sru_recurrence, sru_triton):
            own = u.clone()
            skip = own[:, 3 * dim:] if columns == 4 else x
            state, output = backend.recurrence_forward(own, bias, skip, mask, sizes)
            found.append((own, state, output, *backend.recurrence_backward(grad, own, skip, state, mask, sizes)))
        for plain, fused in zip(*found, strict=True):
            torch.testing.assert_close(fused, plain)
"""


def test_kernels_are_the_plain_recurrence() -> None:
    pytest.importorskip("triton", reason="Triton is not installed: its kernels are used on a GPU alone")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    result = subprocess.run([sys.executable, "-c", COMPARE], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
