"""Weights of a network: from a safetensors file, or from the library that the network comes from."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from bifocal.features.base import Backbone

NAMED_IN_ERROR = 3
CARRIED = "weights.safetensors"
"""File of a ``features`` artifact: weights that were learnt here, or that an encoder over pixels starts from."""
BESIDE = ("adaptation", "whitening")
"""First words of the names in it that are not the backbone's."""
CONVERT = ", convert it with safetensors.torch.save_file(torch.load(path, weights_only=True), 'weights.safetensors')"


def load_weights(backbone: Backbone, path: Path | None) -> str:
    """Give ``backbone`` the weights in ``path``, or the library's own if it is None.

    Returns:
        SHA-256 of the weights as a safetensors file.

    Raises:
        FileNotFoundError: there is no such file, or it cannot be downloaded; says which file to put where.
        ValueError: the file is no safetensors file, or its weights are not this network's.
    """
    if path is not None:
        load_safetensors(backbone.network, path, backbone.head)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    try:
        state = backbone.pretrained()
    except Exception as error:  # each library, and each version of it, raises its own kind
        raise FileNotFoundError(
            f"the pretrained weights of {backbone.describe()['backbone']} cannot be downloaded "
            f"({type(error).__name__}: {error}). Get {_by_hand(backbone.address())}, put the file on this machine, and "
            "set extract_features.weights in params.yaml to its path; or train one here, with pretraining"
        ) from error
    backbone.network.load_state_dict(state)
    return hashlib.sha256(save({name: tensor.contiguous() for name, tensor in state.items()})).hexdigest()


def load_safetensors(network: nn.Module, path: Path, head: str) -> None:
    """Load all weights of ``network`` from a safetensors file; names that begin with ``head`` may be left over.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is another kind of file, such as a pickle, or weights are missing, left over or of another
            shape; names the first.
    """
    fit_weights(network, read_safetensors(path), path, head)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is another kind of file, such as a pickle.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; extract_features.weights is the path of a safetensors file")
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path} is no safetensors file ({error}). A pickle (.pth, .pt, .bin) can run code when it is opened, "
            f"and is refused{CONVERT}"
        ) from error
    return tensors


def fit_weights(network: nn.Module, found: Mapping[str, Tensor], path: Path, head: str) -> None:
    """Give ``network`` the weights ``found`` in the file ``path``; names that begin with ``head`` may be left over.

    Raises:
        ValueError: weights are missing, left over or of another shape; names the first.
    """
    expected, spare = network.state_dict(), {head, *BESIDE}
    kept = {name: tensor for name, tensor in found.items() if name in expected or name.split(".")[0] not in spare}
    problems = [
        *_names("missing", sorted(expected.keys() - kept.keys())),
        *_names("not of this network", sorted(kept.keys() - expected.keys())),
        *_names("of another shape", _other_shapes(expected, kept)),
    ]
    if problems:
        raise ValueError(
            f"{path} does not fit {type(network).__name__}: {'; '.join(problems)}. Check the backbone's name and "
            "model_arguments against those that the weights were trained with"
        )
    network.load_state_dict(kept)


def _by_hand(address: str) -> str:
    return address + CONVERT if address.endswith(".pth") else address


def _other_shapes(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    return [
        f"{name} {tuple(found[name].shape)} for {tuple(expected[name].shape)}"
        for name in sorted(expected.keys() & found.keys())
        if expected[name].shape != found[name].shape
    ]


def _names(what: str, names: list[str]) -> Iterable[str]:
    if names:
        more = ", ..." if len(names) > NAMED_IN_ERROR else ""
        yield f"{len(names)} {what} ({', '.join(names[:NAMED_IN_ERROR])}{more})"
