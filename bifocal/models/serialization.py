"""Build a model from names and sizes, join several models, and save one as its configuration and
weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bifocal.image_encoders.concatenated import ConcatenatedImages
from bifocal.models.base import Model
from bifocal.models.two_branch import TwoBranchModel
from bifocal.onnx.text.captions import FormatName
from bifocal.registry import as_mapping, build, split
from bifocal.serialization import load_config, load_state, save_network
from bifocal.text_encoders.concatenated import ConcatenatedTexts


def build_model(
    model: Any,
    *,
    feature_dim: int,
    text_dim: int,
    text_format: FormatName,
    vocabulary_size: int | None = None,
    inputs: Mapping[str, object] | None = None,
    members: int = 1,
) -> Model:
    """Return a model with random weights.

    Args:
        model: reference to a part of ``bifocal.models`` with its encoders, as for
            ``bifocal.registry.build``: ``{"name": "TwoBranchModel", "dim": 512, "image_encoder":
            {...}, "text_encoder": {...}}``.
        feature_dim: D, channels of a region's feature; 3 for pixels.
        text_dim: K, dimension of a word's or a caption's vector.
        text_format: format of the text, see ``bifocal.text.TextStore``.
        vocabulary_size: number of words; None unless the text is tokens.
        inputs: identity of the features and the vectorizer, see ``bifocal.models.inputs``; a saved
            model keeps it.
        members: number of pairs of encoders whose vectors are concatenated, see
            ``concatenate_models``; the joint space then has ``members`` times ``dim`` dimensions.

    Raises:
        ValueError: a name or an argument is unknown, an encoder is missing, or sizes do not fit
            each other.

    Example:
        >>> parts = {
        ...     "image_encoder": {"name": "SMILEEncoder"},
        ...     "text_encoder": {"name": "LinearEncoder"},
        ... }
        >>> model = build_model(
        ...     {"name": "TwoBranchModel", "dim": 8, **parts},
        ...     feature_dim=6,
        ...     text_dim=5,
        ...     text_format="vectors",
        ... )
        >>> model.image_encoder.dim
        8
    """
    name, arguments = split(model)
    missing = [part for part in Model.parts if part not in arguments]
    if missing:
        raise ValueError(
            f"{name} needs {' and '.join(missing)}: give the name of a part, or a mapping with "
            "its name"
        )
    config = {"name": name, **arguments} | {
        part: as_mapping(arguments[part]) for part in Model.parts
    }
    shared = {} if arguments.get("dim") is None else {"dim": arguments["dim"]}
    sizes = zip(Model.parts.items(), (feature_dim, text_dim), strict=True)
    pairs = {
        part: [build(package, config[part], input_dim=size, **shared) for _ in range(members)]
        for (part, package), size in sizes
    }
    encoders = {part: same[0] for part, same in pairs.items()}
    if members > 1:
        encoders = {
            "image_encoder": ConcatenatedImages(pairs["image_encoder"]),
            "text_encoder": ConcatenatedTexts(
                pairs["text_encoder"], own_words=text_format == "tokens"
            ),
            "dim": None,
        }
    built: Model = build(
        "bifocal.models",
        config | encoders,
        text_format=text_format,
        vocabulary_size=vocabulary_size,
    )
    built.config = {
        "model": config,
        "feature_dim": feature_dim,
        "text_dim": text_dim,
        "text_format": text_format,
        "vocabulary_size": vocabulary_size,
        "inputs": None if inputs is None else dict(inputs),
        "members": members,
    }
    return built


def save_model(directory: Path, model: Model) -> None:
    """Write a model that ``build_model`` built: its arguments and its weights.

    Raises:
        ValueError: the model was not built by ``build_model``, so its arguments are unknown.
    """
    if not model.config:
        raise ValueError(
            f"this {type(model).__name__} has no configuration: build it with build_model to "
            "save it"
        )
    save_network(directory, model.config, model.state_dict())


def load_model(directory: Path, device: torch.device | str = "cpu") -> Model:
    """Return the model in ``directory``, in evaluation mode.

    Raises:
        FileNotFoundError: the directory holds no model.
    """
    config = load_config(directory, "model")
    config.pop("network", None)  # models of 0.2 have this key
    model = build_model(**config)
    model.load_state_dict(load_state(directory, "model"))
    return model.to(device).eval()


def concatenate_models(models: Sequence[Model]) -> Model:
    """Return one model with the vectors of all ``models``, one after the other, divided by sqrt(n).

    The cosine of the result is the mean of the cosines of the models: an ensemble with one vector
    per image and caption, which is saved, exported, indexed and served as one model.
    Lakshminarayanan et al., "Simple and scalable predictive uncertainty estimation using deep
    ensembles", NeurIPS 2017, average networks of different seeds.

    Args:
        models: of ``build_model`` with the same arguments, such as trainings with several seeds;
            one is returned as it is.

    Raises:
        ValueError: the models have different arguments, or several vectors per image.
    """
    first = models[0]
    if len(models) == 1:
        return first
    if any(model.config != first.config for model in models):
        raise ValueError(
            "the models have different arguments: concatenate trainings of one configuration"
        )
    if not isinstance(first, TwoBranchModel):
        raise ValueError(
            f"a {type(first).__name__} has no single vector to concatenate: use a TwoBranchModel"
        )
    joined = build_model(**first.config | {"members": len(models)})
    for part in Model.parts:
        for member, model in zip(getattr(joined, part).members, models, strict=True):
            member.load_state_dict(getattr(model, part).state_dict())
    if joined.word_embedding is not None:
        weights = [
            model.word_embedding.weight for model in models if model.word_embedding is not None
        ]
        joined.word_embedding.weight.data.copy_(torch.cat(weights, dim=1))
    return joined.to(first.device).eval()
