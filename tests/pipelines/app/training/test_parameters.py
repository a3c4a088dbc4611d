"""Weights of ``bifocal train``: a file, else the download, else the backbone of the demo with a warning."""

import socket
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from bifocal.backbones.state import load_weights_file
from bifocal.registry import build
from pipelines.app.training.backbones import demo_section, download_problem
from pipelines.app.training.parameters import training_parameters
from tests.bifocal.hub_server import serve_hub


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("Network is unreachable")

    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("bifocal.backbones.hub.getproxies", dict)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.delenv("BIFOCAL_WEIGHTS", raising=False)


def test_without_a_network_the_demo_backbone_takes_the_place_of_the_weights(
    no_network: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = training_parameters(str(tmp_path / "photos"), None, (), ())
    assert values["extract_features"]["weights"]["name"] == "FromFile"
    warning = capsys.readouterr().err
    for words in ("cannot be downloaded", "recognizes nothing in photographs", "--weights"):
        assert words in warning
    settings = ("extract_features.extractor.size=224",)  # a user who changes the extractor keeps it
    assert (
        training_parameters(str(tmp_path / "photos"), None, (), settings)["extract_features"]["weights"] == "Pretrained"
    )


def test_the_demo_backbone_computes_features_of_photographs() -> None:
    section = demo_section()
    extractor = build("bifocal.features.extractors", section["extractor"])
    before = extractor.backbone.network.conv1[0].weight.clone()
    load_weights_file(extractor.backbone, Path(section["weights"]["path"]))
    assert not extractor.backbone.network.conv1[0].weight.equal(before)
    with torch.inference_mode():
        (regions,) = extractor.extract([torch.zeros(3, 224, 224, dtype=torch.uint8)])
    assert regions.features.shape == (14 * 14, 64)
    assert regions.features.isfinite().all()


def test_weights_are_downloaded_from_a_mirror_where_only_the_mirror_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect = socket.create_connection

    def only_here(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        if address[0] != "127.0.0.1":
            raise OSError("Network is unreachable")
        return connect(address, *arguments, **options)

    monkeypatch.setattr(socket, "create_connection", only_here)
    monkeypatch.setattr("bifocal.backbones.hub.getproxies", dict)
    folder = tmp_path / "root" / "timm" / "resnet10t.c3_in1k"
    folder.mkdir(parents=True)
    save_file(timm.create_model("resnet10t").state_dict(), folder / "model.safetensors")
    with serve_hub(tmp_path / "root") as hub:
        assert download_problem({"extractor": {"name": "Grid", "backbone": "resnet10t", "size": 32}}) is None
        assert hub.got("model.safetensors")
