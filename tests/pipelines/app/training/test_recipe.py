"""Parameters of ``bifocal train``: its recipe, and weights of a file, else a download, else of the
demo."""

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from components.catalog import configurable_components
from pipelines.app.encoders import SENTENCES
from pipelines.app.run_folder import shipped_file
from pipelines.app.training.networks import find_networks
from pipelines.app.training.recipe import compose
from runtime import parameters
from runtime.parameters import validate
from tests.bifocal.hub_server import serve_hub
from tests.bifocal.tiny_transformer import write_tiny_transformer


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
    monkeypatch.setattr("pipelines.app.training.packages.is_packaged", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.delenv("BIFOCAL_WEIGHTS", raising=False)


def test_without_a_network_the_demo_backbone_takes_the_place_of_the_weights(
    no_network: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, recipe, reasons = compose(str(tmp_path / "photos"), None, (), ())
    assert values["extract_features"]["weights"]["name"] == "FromFile"
    assert (recipe.name, reasons) == (
        "images.yaml",
        "photographs with captions, backbone of 'bifocal demo'",
    )
    assert values["export_onnx"]["pointing"] is None  # the backbone has no classifier
    warning = capsys.readouterr().err
    for words in ("cannot be downloaded", "recognizes nothing in photographs", "--weights"):
        assert words in warning
    chosen = compose(
        str(tmp_path / "photos"), None, (), ("extract_features.extractor.size=96",)
    ).values
    assert chosen["extract_features"]["weights"]["name"] == "FromFile"
    assert chosen["extract_features"]["extractor"]["size"] == 96
    settings = (
        "extract_features.extractor.backbone=resnet18",
    )  # a user who names a backbone keeps it
    chosen = compose(str(tmp_path / "photos"), None, (), settings).values
    assert chosen["extract_features"]["weights"] == "Pretrained"
    assert chosen["export_onnx"]["pointing"] == {"name": "ClassMixture"}


def test_by_default_the_networks_of_the_packages_train(
    no_network: None, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.app.training.packages.packaged_networks", lambda: weights)
    values, recipe, reasons = compose(str(tmp_path / "photos"), None, (), ())
    assert (recipe.name, reasons) == ("sentences.yaml", "photographs with captions, small encoders")
    assert values == compose(str(tmp_path / "photos"), weights, (), ()).values
    own = ("extract_features.extractor={name: Grid, backbone: resnet18, size: 64}",)
    assert (
        compose(str(tmp_path / "photos"), None, (), own).reasons
        == "photographs with captions, features of your own"
    )


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
    monkeypatch.setattr("pipelines.app.training.packages.is_packaged", lambda: False)
    monkeypatch.delenv("BIFOCAL_WEIGHTS", raising=False)
    folder = tmp_path / "root" / "timm" / "tf_efficientnet_lite2.in1k"
    folder.mkdir(parents=True)
    save_file(timm.create_model("tf_efficientnet_lite2").state_dict(), folder / "model.safetensors")
    write_tiny_transformer(["a photo of a dog"], folder=tmp_path / "root" / SENTENCES)
    with serve_hub(tmp_path / "root") as hub:
        values, _, reasons = compose(str(tmp_path / "photos"), None, (), ())
        assert hub.got("model.safetensors")
    assert reasons == "photographs with captions, small encoders"
    backbone = Path(values["extract_features"]["weights"]["path"])
    assert backbone.read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_folder_may_hold_several_networks(weights: Path, tmp_path: Path) -> None:
    networks = find_networks(weights)
    assert networks is not None
    assert (networks.backbone.name, networks.sentences) == (
        "mobile.safetensors",
        weights / "encoder",
    )
    values = compose(str(tmp_path / "photos"), weights, (), ()).values
    assert values["extract_features"]["extractor"]["backbone"] == "mobilenetv2_100"
    assert values["export_onnx"]["pointing"] == {
        "name": "ClassMixture",
        "path": str(weights / "encoder"),
    }
    shown = {"name": "BackbonePointing", "head": values["export_onnx"]["pointing"]}
    assert values["evaluate"]["evaluators"][-1] == shown
    layers = values["extract_features"]["extractor"]["layers"]
    assert layers == ["blocks.4", "blocks.5", "blocks.6", "bn2"]
    assert values["vectorize_captions"]["vectorizer"]["vectorizers"][1]["path"] == str(
        weights / "encoder"
    )
    assert values["train_embedding"]["closed_form"][1] == "ClassSentences"
    validate(values, configurable_components().values())
    with pytest.raises(ValueError, match="has the weights of none of"):
        find_networks(tmp_path)


@pytest.mark.slow
def test_with_many_images_the_last_layers_train(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(12):
        Image.new("RGB", (40, 30)).save(photos / f"{number}.jpg")
        (photos / f"{number}.txt").write_text("a dog\n")
    networks = shutil.copytree(weights, tmp_path / "networks")
    save_file(
        timm.create_model("tf_efficientnet_lite2").state_dict(), networks / "lite.safetensors"
    )

    head = {"name": "ClassMixture", "path": str(networks / "encoder")}

    def encoder(last_layers: bool = True) -> str:
        values = compose(str(photos), networks, (), (), last_layers=last_layers).values
        validate(values, configurable_components().values())
        source = values["extract_features"]["weights"]["path"]
        assert source == str((networks / "lite.safetensors").resolve())
        assert values["export_onnx"]["pointing"] == head
        assert values["evaluate"]["evaluators"][-1] == {"name": "BackbonePointing", "head": head}
        name: str = values["train_embedding"]["model"]["image_encoder"]["name"]
        return name

    assert encoder() == "LinearEncoder"
    monkeypatch.setattr("pipelines.app.training.recipe.MANY", 12)
    assert encoder() == "LastLayersEncoder"
    assert encoder(last_layers=False) == "LinearEncoder"
    _, recipe, reasons = compose(str(photos), networks, (), ())
    assert (recipe.name, reasons) == ("many.yaml", "12 photographs with captions, small encoders")


def test_a_file_points_by_words_and_a_choice_stays(weights: Path, tmp_path: Path) -> None:
    file = weights / "mobile.safetensors"
    values, recipe, reasons = compose(str(tmp_path / "photos"), file, (), ())
    assert values["export_onnx"]["pointing"] == {"name": "ClassMixture"}
    assert (recipe.name, reasons) == (
        "images.yaml",
        "photographs with captions, backbone mobile.safetensors",
    )
    chosen = compose(
        str(tmp_path / "photos"), file, (), ("export_onnx.localizer=SMILERegions",)
    ).values
    assert chosen["export_onnx"]["pointing"] is None
    assert chosen["evaluate"]["evaluators"][-1] == "DataQuality"
    setting, head = (
        "export_onnx.pointing={name: ClassMixture, sizes: [448]}",
        {"name": "ClassMixture", "sizes": [448]},
    )
    chosen = compose(str(tmp_path / "photos"), file, (), (setting,)).values
    assert (chosen["export_onnx"]["pointing"], chosen["evaluate"]["evaluators"][-1]["head"]) == (
        head,
        head,
    )


@pytest.mark.parametrize("file", ["mobile.safetensors", ""])
def test_a_copy_of_the_recipe_with_the_paths_has_the_same_parameters(
    weights: Path, tmp_path: Path, file: str
) -> None:
    """As the first lines of the recipes say."""
    values, recipe, _ = compose("/photos", weights / file, (), ())
    text = (
        recipe.read_text()
        .replace("root: null", "root: /photos")
        .replace(f"model: {SENTENCES}", f"path: {weights / 'encoder'}")
    )
    copy = tmp_path / "copy.yaml"
    copy.write_text(text)
    own = parameters.load(shipped_file("params.yaml"), [copy])
    own["extract_features"] |= {
        name: values["extract_features"][name] for name in ("extractor", "weights")
    }
    if file:  # no sentence encoder
        own["export_onnx"]["pointing"] = own["evaluate"]["evaluators"][-1]["head"] = {
            "name": "ClassMixture"
        }
    assert own == values
