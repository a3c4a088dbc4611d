"""Gradient norms of a model's branches in the first training steps."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

from bifocal.training import fitting

STEPS = 5
"""Steps that are measured; they begin when both branches train."""
BRANCHES = {"image": ("image_encoder",), "text": ("text_encoder", "word_embedding")}


@contextmanager
def recorded_gradients(path: Path) -> Iterator[None]:
    """Write the median gradient norm of each branch, at the first steps in which both have one, to
    ``path``.

    A branch that never gets a gradient is not in the file; then the first steps of the other are
    measured.
    """
    both: list[dict[str, float]] = []
    first: list[dict[str, float]] = []
    backward = fitting.backward

    def measured(model: nn.Module, *arguments: Any, **options: Any) -> Tensor:
        value = backward(model, *arguments, **options)
        if len(both) < STEPS:
            norms = {name: norm for name in BRANCHES if (norm := _norm(model, BRANCHES[name])) > 0}
            for rows, wanted in ((first, len(first) < STEPS), (both, len(norms) == len(BRANCHES))):
                if wanted:
                    rows.append(norms)
        return value

    with patch.object(fitting, "backward", measured):
        yield
    rows = both or first
    names = {name for row in rows for name in row}
    path.write_text(
        json.dumps({name: median(row.get(name, 0.0) for row in rows) for name in sorted(names)})
    )


def _norm(model: nn.Module, names: tuple[str, ...]) -> float:
    """Return the l2 norm of the gradients of the model's children ``names``."""
    modules = [module for name in names if (module := getattr(model, name, None)) is not None]
    gradients = [
        p.grad
        for module in modules
        for p in module.parameters()
        if p.requires_grad and p.grad is not None
    ]
    return math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))
