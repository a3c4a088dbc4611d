"""The networks of the packages of the extra small: found, checked, converted once, and answered by
the cache."""

import hashlib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file

from pipelines.app.training import packages
from pipelines.app.training.networks import find_networks

DIGEST = "37c517cd850f"


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's names and values, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(file).items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.slow
def test_both_networks_are_those_that_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert packages.is_packaged()
    folder = packages.packaged_networks()
    assert folder is not None
    networks = find_networks(folder)
    assert networks is not None
    assert networks.sentences is not None
    with torch.device("meta"):
        expected = timm.create_model(packages.BACKBONE).state_dict()
    assert {name: tensor.shape for name, tensor in load_file(networks.backbone).items()} == {
        name: tensor.shape for name, tensor in expected.items()
    }
    assert digest_of(networks.backbone)[:12] == DIGEST  # of timm/tf_efficientnet_lite2.in1k
    for name, digest in packages.SUMS[packages.SENTENCES_PACKAGE].items():
        file = networks.sentences / Path(name).relative_to("model")
        assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    assert packages.packaged_networks() == folder  # the cache needs no package
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert packages.packaged_networks() is None


def test_a_changed_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / packages.BACKBONE_PACKAGE
    (package / "models").mkdir(parents=True)
    (package / packages.BACKBONE_FILE).write_bytes(b"changed")
    spec = ModuleSpec(package.name, None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(packages, "find_spec", lambda name: spec)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"9656183e.pth has the SHA-256 .*, expected 9656183e.*: install"
        ):
            packages.packaged_networks()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
