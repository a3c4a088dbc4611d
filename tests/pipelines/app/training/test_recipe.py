"""Parameters of ``bifocal train``: its recipe, and weights of a file, else a download, else of the
demo."""

import socket
from pathlib import Path
from typing import Any

import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from bifocal.backbones import packages
from bifocal.backbones.networks import named_networks
from bifocal.backbones.packages import BACKBONE, SENTENCES
from components.catalog import configurable_components
from pipelines.app.run_folder import shipped_file
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
    monkeypatch.setattr("bifocal.backbones.packages.packaged_folder", lambda _: None)
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
        "photographs with captions, backbone of 'bifocal demo', without a pointing head",
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


def test_by_default_the_networks_at_hand_train_by_their_names(
    no_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "packaged_folder", lambda repository: tmp_path)
    values, recipe, reasons = compose(str(tmp_path / "photos"), None, (), ())
    assert (recipe.name, reasons) == ("sentences.yaml", "photographs with captions, small encoders")
    assert str(tmp_path / "photos") in str(values)
    values["prepare_dataset"]["corpus"]["root"] = None
    assert str(tmp_path) not in str(values)  # other machines have the networks elsewhere
    own = ("extract_features.extractor={name: Grid, backbone: resnet18, size: 64}",)
    assert compose(str(tmp_path / "photos"), None, (), own).reasons == (
        "photographs with captions, features of your own, without a pointing head"
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
    monkeypatch.setattr("bifocal.backbones.packages.packaged_folder", lambda _: None)
    monkeypatch.delenv("BIFOCAL_WEIGHTS", raising=False)
    folder = tmp_path / "root" / BACKBONE
    folder.mkdir(parents=True)
    save_file(timm.create_model("tf_efficientnet_lite2").state_dict(), folder / "model.safetensors")
    write_tiny_transformer(["a photo of a dog"], folder=tmp_path / "root" / SENTENCES)
    with serve_hub(tmp_path / "root") as hub:
        values, _, reasons = compose(str(tmp_path / "photos"), None, (), ())
        assert hub.got("model.safetensors")
    assert reasons == "photographs with captions, small encoders"
    assert values["extract_features"]["weights"] == "Pretrained"


def test_a_folder_may_hold_several_networks(weights: Path, tmp_path: Path) -> None:
    networks = named_networks(weights)
    assert networks == (weights / "lite.safetensors", weights / "encoder")
    values = compose(str(tmp_path / "photos"), weights, (), ()).values
    head = {"name": "ClassMixture", "path": str(weights / "encoder")}
    assert values["export_onnx"]["pointing"] == head
    assert values["evaluate"]["evaluators"][-1] == {"name": "BackbonePointing", "head": head}
    assert values["evaluate"]["evaluators"][1]["untrained"] == str(weights)
    assert values["vectorize_captions"]["vectorizer"]["vectorizers"][1]["path"] == head["path"]
    validate(values, configurable_components().values())
    with pytest.raises(ValueError, match=r"has no \*\.safetensors with the weights of Efficient"):
        named_networks(tmp_path)


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        ("other", (), "has not the weights of tf_efficientnet_lite2.in1k: write a recipe"),
        ("lite", ("extract_features.weights=Pretrained",), "is not used: --recipe or --set names"),
    ],
)
def test_weights_that_are_not_used_are_an_error(
    weights: Path, tmp_path: Path, file: str, settings: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compose(str(tmp_path / "photos"), weights / f"{file}.safetensors", (), settings)


@pytest.mark.slow
def test_with_many_images_the_last_layers_train(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(12):
        Image.new("RGB", (40, 30)).save(photos / f"{number}.jpg")
        (photos / f"{number}.txt").write_text("a dog\n")
    networks = weights
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
    file = weights / "lite.safetensors"
    values, recipe, reasons = compose(str(tmp_path / "photos"), file, (), ())
    assert values["export_onnx"]["pointing"] == {"name": "ClassMixture"}
    assert (recipe.name, reasons) == (
        "images.yaml",
        "photographs with captions, backbone lite.safetensors",
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


@pytest.mark.parametrize("name", ["sentences", "many", "images"])
@pytest.mark.parametrize(
    "change", [None, ("size: 260", "size: 224"), ("0.5, 0.5, 0.5", "0.4, 0.5, 0.6")]
)
def test_a_copy_of_the_recipe_is_the_training(
    name: str,
    change: tuple[str, str] | None,
    weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the first lines of the recipes say: only the folder and the files of this machine are set,
    and each value of the recipe counts.
    """
    text = shipped_file(f"recipes/own/{name}.yaml").read_text()
    text = text.replace(*change) if change else text
    shipped = tmp_path / "recipes" / "own" / f"{name}.yaml"
    shipped.parent.mkdir(parents=True)
    shipped.write_text(text)
    original = shipped_file
    monkeypatch.setattr(
        "pipelines.app.training.recipe.shipped_file",
        lambda file: shipped if file.endswith(f"own/{name}.yaml") else original(file),
    )
    monkeypatch.setattr("pipelines.app.training.recipe.MANY", 0 if name == "many" else 10**9)
    source = weights / "lite.safetensors" if name == "images" else weights
    found = compose("/photos", source, (), ())
    assert found.recipe == shipped
    copy = tmp_path / "copy.yaml"
    weights_value = f"{{name: FromFile, path: {weights / 'lite.safetensors'}}}"
    copy.write_text(
        text.replace("root: null", "root: /photos")
        .replace(f"model: {SENTENCES}", f"path: {weights / 'encoder'}")
        .replace("weights: Pretrained", f"weights: {weights_value}")
        .replace("untrained: small", f"untrained: {weights if name != 'images' else 'small'}")
    )
    assert parameters.load(shipped_file("params.yaml"), [copy]) == found.values
