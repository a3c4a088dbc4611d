"""Weights of a backbone: read from a safetensors file or downloaded by its library, and loaded into
the network."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from bifocal.backbones import packages
from bifocal.backbones.base import Backbone
from bifocal.durable import file_digest

WEIGHTS_FILE = "weights.safetensors"
"""File of a feature directory with the backbone's weights, for an encoder, an exported graph or a
later run."""
EXTRA_PREFIX = "adaptation"
"""First component of names in a weights file that belong to another module than the backbone."""
MAX_NAMES_IN_ERROR = 3
CONVERT = (
    "convert it with safetensors.torch.save_file(torch.load(path, weights_only=True), "
    "'weights.safetensors')"
)


def load_weights_file(backbone: Backbone, path: Path) -> str:
    """Load the weights in ``path`` into ``backbone``, and return the SHA-256 of the file."""
    load_into(backbone.network, read_safetensors(path), path, backbone.classifier_prefix)
    return file_digest(path)


def load_library_weights(backbone: Backbone) -> str:
    """Load the library's weights, of a package or by a download; return their SHA-256 as a
    safetensors file."""
    packaged = packages.packaged_folder(f"timm/{backbone.describe()['backbone']}")
    if packaged is not None:
        return load_weights_file(backbone, packaged / "model.safetensors")
    try:
        state = backbone.pretrained_state()
    except Exception as error:  # libraries, and their versions, raise different classes
        url = backbone.download_url()
        by_hand = f"{url} and {CONVERT}" if url.endswith(".pth") else url
        raise FileNotFoundError(
            f"the pretrained weights of {backbone.describe()['backbone']} cannot be downloaded "
            f"({type(error).__name__}: {error}). Download {by_hand}, then load the file with "
            "FromFile; or train the backbone with TrainOnPhrases or TrainClassifier"
        ) from error
    backbone.network.load_state_dict(state)
    return hashlib.sha256(
        save({name: tensor.contiguous() for name, tensor in state.items()})
    ).hexdigest()


def load_feature_weights(
    network: nn.Module, directory: Path, classifier_prefix: str = ""
) -> dict[str, Tensor]:
    """Load the weights that a feature directory keeps into ``network``; return other modules'
    tensors by name."""
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: an encoder over pixels starts from the weights in the feature "
            "directory; extract the features with ImageFiles or Pixels"
        )
    tensors = read_safetensors(path)
    load_into(network, tensors, path, classifier_prefix)
    return extra_tensors(tensors)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file, expected a safetensors file with the weights of a backbone"
        )
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a safetensors file ({error}). A pickle (.pth, .pt, .bin) can run "
            f"code when it is opened and is refused; {CONVERT}"
        ) from error
    return tensors


def extra_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of other modules than the backbone, see ``EXTRA_PREFIX``."""
    return {name: tensor for name, tensor in tensors.items() if name.split(".")[0] == EXTRA_PREFIX}


def load_into(
    network: nn.Module, tensors: Mapping[str, Tensor], path: Path, classifier_prefix: str = ""
) -> None:
    """Load ``tensors`` from ``path``; a classifier and ``EXTRA_PREFIX`` that the network lacks
    are ignored."""
    expected, optional = network.state_dict(), {classifier_prefix, EXTRA_PREFIX}
    state = {
        name: tensor
        for name, tensor in tensors.items()
        if name in expected or name.split(".")[0] not in optional
    }
    problems = [
        *_list_names("missing", sorted(expected.keys() - state.keys())),
        *_list_names("not of this network", sorted(state.keys() - expected.keys())),
        *_list_names("of another shape", _different_shapes(expected, state)),
    ]
    if problems:
        raise ValueError(
            f"{path} does not fit {type(network).__name__}: {'; '.join(problems)}. Compare the "
            "backbone's name and model_arguments with the arguments of the network that was "
            "trained"
        )
    network.load_state_dict(state)


def _different_shapes(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    return [
        f"{name} {tuple(state[name].shape)} for {tuple(expected[name].shape)}"
        for name in sorted(expected.keys() & state.keys())
        if expected[name].shape != state[name].shape
    ]


def _list_names(problem: str, names: list[str]) -> Iterable[str]:
    if names:
        more = ", ..." if len(names) > MAX_NAMES_IN_ERROR else ""
        yield f"{len(names)} {problem} ({', '.join(names[:MAX_NAMES_IN_ERROR])}{more})"
