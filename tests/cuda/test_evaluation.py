"""Evaluators of a model on the GPU: the metrics are those of the same model on the CPU."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from bifocal.evaluation.base import Subject, scalar_metrics
from bifocal.registry import build, registered
from tests.cuda.device import DEVICE, needs_device

pytestmark = needs_device
WITH_FILES = {"JudgedRetrieval", "SugarCrepe"}
"""Evaluators that read published files."""


@pytest.mark.parametrize("name", sorted(registered("bifocal.evaluation").keys() - WITH_FILES))
def test_metrics_equal_the_cpu(subject: Subject, name: str) -> None:
    def metrics(device: Any) -> dict[str, float]:
        own = replace(subject, model=copy.deepcopy(subject.model).to(device), resamples=20)
        return scalar_metrics([build("bifocal.evaluation", name)(own)])

    # The ranks of an untrained model can differ by the rounding of its scores.
    assert metrics(DEVICE) == pytest.approx(metrics(torch.device("cpu")), abs=5.0, nan_ok=True)
