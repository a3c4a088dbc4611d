"""Small pointing heads of random weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from bifocal.backbones.classes import Classes, write_classes
from bifocal.backbones.timm.backbone import BackboneConfig, TimmBackbone
from bifocal.export.pointing import export_head
from bifocal.localization.heads import ClassMixture

NAMES = [["red fox", "fox"], ["tabby cat"], ["fire engine"]]
DEFINITIONS = [
    "red fox: a wild animal",
    "tabby cat: a pet",
    "fire engine: a red truck that puts out fires",
]
PADDED: dict[str, Any] = {"backbone": "test_efficientnet", "model_arguments": {"pad_type": "same"}}


def describe(network: dict[str, Any]) -> dict[str, Any]:
    half = [0.5, 0.5, 0.5]
    return {**network, "preprocessing": {"mean": half, "std": half, "interpolation": "bicubic"}}


def write_network(network: dict[str, Any], file: Path) -> None:
    torch.manual_seed(0)
    config = BackboneConfig(network["backbone"], 64, model_arguments=network["model_arguments"])
    save_file(TimmBackbone(config, with_classifier=True).network.state_dict(), file)


def write_head(
    folder: Path,
    network: dict[str, Any] = PADDED,
    shown_with: Mapping[int, Sequence[str]] | None = None,
    **options: Any,
) -> tuple[ClassMixture, float]:
    """Write the head of three classes; return its part and the largest difference from torch."""
    write_network(network, folder / "weights.safetensors")
    config = BackboneConfig(network["backbone"], 64, model_arguments=network["model_arguments"])
    channels = TimmBackbone(config).network.num_features
    rows = torch.randn(3, channels, generator=torch.Generator().manual_seed(1))
    write_classes(
        folder / "classes.safetensors", Classes(NAMES, DEFINITIONS, rows, shown_with or {})
    )
    head = ClassMixture(classes=folder / "classes.safetensors", **{"sizes": (96, 64), **options})
    parities = export_head(
        describe(network), folder / "weights.safetensors", head, folder / "head", seed=0
    )
    return head, max(parity.difference for parity in parities)
