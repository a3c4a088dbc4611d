"""A head on disk: ``head.json`` says how to build it, ``model.safetensors`` holds its weights."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from bifocal import registry

CONFIGURATION, WEIGHTS = "head.json", "model.safetensors"


def save_head(
    directory: Path, head: nn.Module, arguments: Mapping[str, Any], *, input_dim: int, task: str, labels: Sequence[str]
) -> None:
    """Write ``head``.

    Args:
        arguments: what it was built with, ``input_dim`` and the number of labels left out.
        labels: names of its scores, in their order.
    """
    configuration = {
        "name": type(head).__name__,
        "arguments": dict(arguments),
        "input_dim": input_dim,
        "task": task,
        "labels": list(labels),
    }
    (directory / CONFIGURATION).write_text(json.dumps(configuration, indent=2, sort_keys=True) + "\n")
    save_file({name: weight.contiguous() for name, weight in head.state_dict().items()}, directory / WEIGHTS)


def load_head(directory: Path) -> tuple[nn.Module, list[str]]:
    """The head of a ``ranking_head`` artifact in evaluation mode, and the names of its scores.

    Raises:
        FileNotFoundError: the directory holds no head.
    """
    path = directory / CONFIGURATION
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no head (no {CONFIGURATION}): run the stage train_ranking_head")
    known = json.loads(path.read_text())
    head: nn.Module = registry.build(
        "bifocal.ranking_heads",
        {"name": known["name"], **known["arguments"]},
        input_dim=known["input_dim"],
        labels=len(known["labels"]),
    )
    head.load_state_dict(load_file(directory / WEIGHTS))
    return head.eval(), known["labels"]
