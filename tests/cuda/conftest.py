"""Fixtures of other folders. Without boto3 and moto, run: pytest --confcutdir tests/cuda
tests/cuda."""

import pytest
import torch

from tests.bifocal.conftest import kill_at, pairs, squares, stores  # noqa: F401
from tests.bifocal.evaluation.conftest import subject  # noqa: F401
from tests.bifocal.training.conftest import configuration, inputs, new_model, train  # noqa: F401


@pytest.fixture(autouse=True)
def without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply float32 as float32: by default, convolutions and RNNs of cuDNN round their inputs to
    10 bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
