"""A model on disk: ``model.json`` says how to build it, ``model.safetensors`` holds its weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bifocal.models.grounding import GroundingModel
from bifocal.models.two_branch import TwoBranchModel
from bifocal.registry import build

CONFIGURATION, WEIGHTS = "model.json", "model.safetensors"


Model = TwoBranchModel | GroundingModel


def build_model(
    image_encoder: Mapping[str, Any],
    text_encoder: Mapping[str, Any],
    *,
    dim: int,
    feature_dim: int,
    text_dim: int,
    text_kind: str,
    words: int | None,
    model: Mapping[str, Any] | None = None,
) -> Model:
    """A model with random weights.

    Args:
        image_encoder, text_encoder: ``{"name": ..., argument: value}``, parts of ``bifocal.image_encoders`` and
            ``bifocal.text_encoders``.
        dim: d, of the embedding.
        feature_dim: D, channels of an image's features.
        text_dim: K, of a word's or a caption's vector.
        text_kind: "tokens", or how the text comes otherwise, see ``bifocal.text.TextStore``.
        words: size of the vocabulary; None if the text comes as vectors.
        model: part of ``bifocal.models``; a ``TwoBranchModel`` if not given, as in older files.
    """
    built: Model = build(
        "bifocal.models",
        {"name": "TwoBranchModel"} if model is None else model,
        image_encoder=build("bifocal.image_encoders", image_encoder, input_dim=feature_dim, dim=dim),
        text_encoder=build("bifocal.text_encoders", text_encoder, input_dim=text_dim, dim=dim),
        words=None if words is None else nn.Embedding(words, text_dim, padding_idx=0),
        feature_dim=feature_dim,
        text_dim=text_dim,
        text_kind=text_kind,
    )
    return built


def save_model(directory: Path, configuration: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write the arguments of ``build_model`` and the weights of what it built."""
    (directory / CONFIGURATION).write_text(json.dumps(configuration, indent=2, sort_keys=True) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, directory / WEIGHTS)


def load_model(directory: Path, device: torch.device | str = "cpu") -> Model:
    """The model of an ``embedding`` artifact, in evaluation mode.

    Raises:
        FileNotFoundError: the directory holds no model.
    """
    if not (directory / CONFIGURATION).is_file():
        raise FileNotFoundError(f"{directory} holds no model ({CONFIGURATION} is missing): give an embedding artifact")
    model = build_model(**json.loads((directory / CONFIGURATION).read_text()))
    model.load_state_dict(load_file(directory / WEIGHTS))
    return model.to(device).eval()
