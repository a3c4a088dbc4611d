"""The two networks of the encoder small at hand: of the user's files, of packages, or of a hub."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from bifocal.backbones.hub import download
from bifocal.backbones.packages import BACKBONE, SENTENCES

VARIABLE = "BIFOCAL_WEIGHTS"
LAYOUT = "718c79eb1ad7c0aac1ebcc340c405fe48d85ba4aa36f90fd15d8a74a1857cadc"
"""SHA-256 of the names and shapes of the tensors of EfficientNet-Lite2."""
SENTENCE_FILES, EXCLUDED_FILES = ("*.json", "*.safetensors"), ("onnx/*", "openvino/*")


class Networks(NamedTuple):
    """A file with the weights of a backbone, and the folder of a sentence encoder."""

    backbone: Path
    sentences: Path | None = None


def is_backbone(file: Path) -> bool:
    """Return whether a safetensors file has the tensors of EfficientNet-Lite2, by their names and
    shapes."""
    try:
        with safe_open(file, framework="np") as opened:
            names = opened.keys()
            shapes = [(name, tuple(opened.get_slice(name).get_shape())) for name in names]
    except SafetensorError as error:
        raise ValueError(
            f"{file} is not a safetensors file ({error}); convert it with "
            "safetensors.torch.save_file"
        ) from error
    return hashlib.sha256(repr(sorted(shapes)).encode()).hexdigest() == LAYOUT


def named_networks(option: Path | None) -> Networks | None:
    """Return the networks of ``--weights``, or else of ``BIFOCAL_WEIGHTS``: a file, or a folder
    with EfficientNet-Lite2 and the folder of a sentence encoder. None if nothing is named.
    """
    variable = os.environ.get(VARIABLE)
    path = option or (Path(variable) if variable else None)
    if path is None:
        return None
    if path.is_file():
        return Networks(path.resolve())
    if not path.is_dir():
        raise FileNotFoundError(
            f"{path}: no such file; expected a safetensors file with the weights of a timm model, "
            "or a folder with it and a sentence encoder"
        )
    fitting = [file for file in sorted(path.glob("*.safetensors")) if is_backbone(file)]
    if not fitting:
        raise ValueError(
            f"{path} has no *.safetensors with the weights of EfficientNet-Lite2, {BACKBONE}"
        )
    encoders = [file.parent.resolve() for file in sorted(path.glob("*/modules.json"))]
    return Networks(fitting[0].resolve(), encoders[0] if encoders else None)


def small_networks(*, offline: bool = False) -> Networks:
    """Return both networks of small: of packages, of earlier downloads, or else of the hub.

    Raises:
        FileNotFoundError: the packages are not installed, and the networks cannot be downloaded.
    """
    backbone = download(BACKBONE, ["model.safetensors"], offline=offline)
    sentences = download(SENTENCES, SENTENCE_FILES, EXCLUDED_FILES, offline=offline)
    return Networks(backbone / "model.safetensors", sentences)
