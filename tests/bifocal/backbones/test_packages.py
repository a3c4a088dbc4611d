"""The networks of the packages of the extra small: found, checked, converted once, and answered by
the cache."""

import hashlib
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bifocal.backbones import packages
from bifocal.backbones.networks import is_backbone, small_networks
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.network import sentence_vectors

DIGEST = "37c517cd850f"


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's names and values, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(file).items()):
        digest.update(name.encode() + tensor.tobytes())
    return digest.hexdigest()


def test_both_networks_are_those_that_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    networks = small_networks(offline=True)
    assert is_backbone(networks.backbone)
    assert digest_of(networks.backbone)[:12] == DIGEST  # of timm/tf_efficientnet_lite2.in1k
    assert networks.sentences is not None
    encoder = TransformerFolder.read(networks.sentences)
    (vector,) = sentence_vectors(encoder, ["A dog runs through the snow."]).numpy()
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    assert small_networks(offline=True) == networks  # the cache needs no package
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert packages.packaged_folder(packages.BACKBONE) is None
    assert packages.packaged_folder("owner/name") is None


@pytest.mark.parametrize("repository", packages.FILES)
def test_a_changed_file_is_refused(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, name, digest = packages.FILES[repository]
    file = tmp_path / package / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"changed")
    spec = ModuleSpec(package, None, origin=str(tmp_path / package / "__init__.py"))
    monkeypatch.setattr(packages, "find_spec", lambda name: spec)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        with pytest.raises(
            ValueError, match=rf"{name} has the SHA-256 .*, expected {digest}: install"
        ):
            packages.packaged_folder(repository)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
