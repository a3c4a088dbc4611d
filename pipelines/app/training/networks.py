"""Networks for the user's own images: files of weights, the backbone of each, and its pointing
head."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError, safe_open

from bifocal.onnx.pointing import PointingHead
from pipelines.app.demo import BACKBONE, RECIPE, SHIPPED
from runtime import parameters

WEIGHTS_VARIABLE = "BIFOCAL_WEIGHTS"
DEMO_SIZE = 224
"""Pixels of a photograph's side for the backbone of ``bifocal demo``."""
HALF = [0.5, 0.5, 0.5]
KNOWN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "tf_efficientnet_lite2": {
            "layers": ["blocks.5", "bn2"],
            "size": 260,
            "mean": HALF,
            "std": HALF,
        },
        "tf_efficientnet_lite0": {
            "layers": ["blocks.5", "bn2"],
            "size": 224,
            "mean": HALF,
            "std": HALF,
        },
        "mobilenetv2_100": {
            "layers": ["blocks.5", "bn2"],
            "size": 224,
            "mean": HALF,
            "std": HALF,
            "model_arguments": {"pad_type": "same"},
        },
        "resnet18": {"layers": ["layer3", "layer4"], "size": 224},
        "resnet50": {"layers": ["layer3", "layer4"], "size": 224},
        "resnet101": {"layers": ["layer3", "layer4"], "size": 224},
        "resnet152": {"layers": ["layer3", "layer4"], "size": 224},
    }
)
"""Arguments of the extractor for each backbone that a file of weights is recognized as."""
LOWER: Mapping[str, Sequence[str]] = MappingProxyType(
    {"blocks.5": ("blocks.4", "blocks.6"), "layer3": ("layer2",)}
)
"""Further layers of a family of backbones, by the first of ``KNOWN``, for means of whole maps."""


@dataclass(frozen=True)
class Networks:
    """Networks of ``--weights``: a file with the weights of a backbone, and the folder of a
    sentence encoder."""

    backbone: Path
    sentences: Path | None = None


def find_networks(option: Path | None) -> Networks | None:
    """Return the networks at ``--weights``, or else at ``BIFOCAL_WEIGHTS``: a file, or a folder
    with several networks.

    Of several known backbones in a folder, the first of ``KNOWN`` is taken. None if nothing is
    named.
    """
    named = option or (
        Path(os.environ[WEIGHTS_VARIABLE]) if os.environ.get(WEIGHTS_VARIABLE) else None
    )
    if named is None:
        return None
    if named.is_dir():
        return _networks_of(named)
    if not named.is_file():
        raise FileNotFoundError(
            f"{named}: no such file; expected a safetensors file with the weights of a timm "
            "model, or a folder with it and a sentence encoder"
        )
    return Networks(named)


def _networks_of(folder: Path) -> Networks:
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with contextlib.suppress(ValueError):  # another network
            found.setdefault(recognize(file), file)
    if not found:
        raise ValueError(
            f"{folder} has the weights of none of {', '.join(KNOWN)}, as *.safetensors"
        )
    encoders = [file.parent for file in sorted(folder.glob("*/modules.json"))]
    return Networks(
        next(found[name] for name in KNOWN if name in found), encoders[0] if encoders else None
    )


def features_section(weights: Path, extractor_name: str = "Hypercolumns") -> dict[str, Any]:
    """Return the section ``extract_features`` for a file of weights; for ``Grid``, only of the
    weights."""
    source = {"weights": {"name": "FromFile", "path": str(weights.resolve())}}
    if extractor_name == "Grid":  # the model of the recipe belongs to its backbone
        return source
    name = recognize(weights)
    extractor = {
        "name": extractor_name,
        "backbone": name,
        "power": 0.5,
        "classes": True,
        **KNOWN[name],
    }
    if (
        extractor_name == "PooledLayers"
    ):  # a vector of an image has room for more layers than one of each cell
        extractor["layers"] = sorted([*LOWER.get(extractor["layers"][0], ()), *extractor["layers"]])
    return {"extractor": extractor, **source}


def demo_section() -> dict[str, Any]:
    """Return the section ``extract_features`` with the backbone of ``bifocal demo``, which is part
    of the package."""
    extractor = parameters.load(SHIPPED / RECIPE)["extract_features"]["extractor"]
    weights = {"name": "FromFile", "path": str(SHIPPED / BACKBONE)}
    return {"extractor": {**extractor, "size": DEMO_SIZE}, "weights": weights}


def recognize(weights: Path) -> str:
    """Return the name of the known backbone whose weights have the names and shapes of the
    file's."""
    import timm
    import torch

    try:
        with safe_open(weights, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{weights} is not a safetensors file ({error}); convert it with "
            "safetensors.torch.save_file"
        ) from error
    for name, arguments in KNOWN.items():
        with torch.device("meta"):
            network = timm.create_model(name, **arguments.get("model_arguments", {}))
        expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
        if expected == shapes:
            return name
    raise ValueError(
        f"{weights} has the weights of none of {', '.join(KNOWN)}: write a recipe that names "
        "your backbone in extract_features, and give it with --recipe"
    )


def pointing_section(networks: Networks) -> dict[str, Any]:
    """Return the pointing head of a backbone: by its sentence encoder, or by words without one."""
    source = {} if networks.sentences is None else {"path": str(networks.sentences.resolve())}
    return {"name": "ClassMixture", **source}


def pointer_of_weights(path: Path) -> PointingHead:
    """Return the pointing head of a file or a folder of weights; the user's cache keeps it."""
    return PointingHead(head_of_weights(path))


def head_of_weights(path: Path) -> Path:
    """Return the folder of the exported pointing head of a file or a folder of weights, in the
    user's cache."""
    from bifocal.durable.cached import cached_folder, kept, state_of
    from bifocal.export.pointing import export_head
    from bifocal.registry import build

    networks = find_networks(path)
    assert networks is not None  # the path is given
    section = features_section(networks.backbone)["extractor"]
    backbone = build("bifocal.features.extractors", section).backbone
    head = build("bifocal.localization.heads", pointing_section(networks))
    encoder = (
        [] if networks.sentences is None else sorted(networks.sentences.rglob("*.safetensors"))
    )
    files = map(state_of, (networks.backbone, *encoder))
    return cached_folder(
        kept("heads", str(head), *files, code=["bifocal.export.pointing"]),
        lambda folder: export_head(backbone.describe(), networks.backbone, head, folder, seed=0),
    )
