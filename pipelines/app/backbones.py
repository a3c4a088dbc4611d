"""Backbones for the user's own images, and the network that a file of weights belongs to."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError, safe_open

WEIGHTS_VARIABLE = "BIFOCAL_WEIGHTS"
HALF = [0.5, 0.5, 0.5]
KNOWN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "tf_efficientnet_lite2": {"layers": ["blocks.5", "bn2"], "size": 260, "mean": HALF, "std": HALF},
        "tf_efficientnet_lite0": {"layers": ["blocks.5", "bn2"], "size": 224, "mean": HALF, "std": HALF},
        "mobilenetv2_100": {
            "layers": ["blocks.5", "bn2"], "size": 224, "mean": HALF, "std": HALF,
            "model_arguments": {"pad_type": "same"},
        },
        "resnet18": {"layers": ["layer3", "layer4"], "size": 224},
        "resnet50": {"layers": ["layer3", "layer4"], "size": 224},
        "resnet101": {"layers": ["layer3", "layer4"], "size": 224},
        "resnet152": {"layers": ["layer3", "layer4"], "size": 224},
    }
)  # fmt: skip
"""Arguments of the extractor for each backbone that a file of weights is recognized as."""


def weights_file(option: Path | None) -> Path | None:
    """Return the file of weights: ``--weights``, or else ``BIFOCAL_WEIGHTS``; None if neither is given.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    named = option or (Path(os.environ[WEIGHTS_VARIABLE]) if os.environ.get(WEIGHTS_VARIABLE) else None)
    if named is not None and not named.is_file():
        raise FileNotFoundError(f"{named}: no such file; expected a safetensors file with the weights of a timm model")
    return named


def features_section(weights: Path) -> dict[str, Any]:
    """Return the section ``extract_features`` for a file of weights.

    Raises:
        ValueError: the file is no safetensors file, or belongs to none of the known backbones.
    """
    name = recognize(weights)
    extractor = {"name": "Hypercolumns", "backbone": name, "power": 0.5, "classes": True, **KNOWN[name]}
    return {"extractor": extractor, "weights": {"name": "FromFile", "path": str(weights.resolve())}}


def recognize(weights: Path) -> str:
    """Return the name of the known backbone whose weights have the names and shapes of the file's.

    Raises:
        ValueError: the file is no safetensors file, or belongs to none of them.
    """
    import timm
    import torch

    try:
        with safe_open(weights, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{weights} is no safetensors file ({error}); convert it with safetensors.torch.save_file"
        ) from error
    for name, arguments in KNOWN.items():
        with torch.device("meta"):
            network = timm.create_model(name, **arguments.get("model_arguments", {}))
        expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
        if expected == shapes:
            return name
    raise ValueError(
        f"{weights} has the weights of none of {', '.join(KNOWN)}: write a recipe that names your backbone in "
        "extract_features, and give it with --recipe"
    )
