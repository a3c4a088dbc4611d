"""The pointing head of 'bifocal train', and of weights without a run."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from bifocal.text.transformer.tiny import write_tiny_transformer
from components.catalog import configurable_components
from pipelines.app.training.backbones import find_networks
from pipelines.app.training.parameters import training_parameters
from pipelines.app.training.pointing import pointer_of_weights
from runtime.parameters import validate
from tests.pipelines.app.conftest import Command


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a random backbone, a sentence encoder, and another network."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    save_file(timm.create_model("mobilenetv2_100", pad_type="same").state_dict(), folder / "mobile.safetensors")
    save_file({"other": torch.zeros(1)}, folder / "other.safetensors")
    encoder = write_tiny_transformer(["a photo of a dog"], folder=folder / "encoder")
    (encoder / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer", "path": ""}]')
    return folder


@pytest.fixture
def cache(weights: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's cache, which all tests share: an export takes seconds."""
    folder = weights.with_name("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def test_a_folder_may_hold_several_networks(weights: Path, tmp_path: Path) -> None:
    networks = find_networks(weights)
    assert networks is not None
    assert (networks.backbone.name, networks.sentences) == ("mobile.safetensors", weights / "encoder")
    values = training_parameters(str(tmp_path / "photos"), weights, (), ())
    assert values["extract_features"]["extractor"]["backbone"] == "mobilenetv2_100"
    assert values["export_onnx"]["pointing"] == {"name": "ClassMixture", "path": str(weights / "encoder")}
    shown = {"name": "BackbonePointing", "head": values["export_onnx"]["pointing"]}
    assert values["evaluate"]["evaluators"][-1] == shown
    layers = values["extract_features"]["extractor"]["layers"]
    assert layers == ["blocks.4", "blocks.5", "blocks.6", "bn2"]
    assert values["vectorize_captions"]["vectorizer"]["vectorizers"][1]["path"] == str(weights / "encoder")
    assert values["train_embedding"]["closed_form"][1] == "ClassSentences"
    validate(values, configurable_components().values())
    with pytest.raises(ValueError, match="has the weights of none of"):
        find_networks(tmp_path)


def test_with_many_images_the_last_layers_train(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(12):
        Image.new("RGB", (40, 30)).save(photos / f"{number}.jpg")
        (photos / f"{number}.txt").write_text("a dog\n")
    networks = shutil.copytree(weights, tmp_path / "networks")
    save_file(timm.create_model("tf_efficientnet_lite2").state_dict(), networks / "lite.safetensors")

    head = {"name": "ClassMixture", "path": str(networks / "encoder")}

    def encoder(**options: bool) -> str:
        values = training_parameters(str(photos), networks, (), (), **options)
        validate(values, configurable_components().values())
        source = values["extract_features"]["weights"]["path"]
        assert source == str((networks / "lite.safetensors").resolve())
        assert values["export_onnx"]["pointing"] == head
        assert values["evaluate"]["evaluators"][-1] == {"name": "BackbonePointing", "head": head}
        name: str = values["train_embedding"]["model"]["image_encoder"]["name"]
        return name

    assert encoder() == "LinearEncoder"
    monkeypatch.setattr("pipelines.app.training.parameters.MANY", 12)
    assert encoder() == "LastLayersEncoder"
    assert encoder(last_layers=False) == "LinearEncoder"


def test_a_file_points_by_words_and_a_choice_stays(weights: Path, tmp_path: Path) -> None:
    file = weights / "mobile.safetensors"
    assert training_parameters(str(tmp_path / "photos"), file, (), ())["export_onnx"]["pointing"] == {
        "name": "ClassMixture"
    }
    chosen = training_parameters(str(tmp_path / "photos"), file, (), ("export_onnx.localizer=SMILERegions",))
    assert "pointing" not in chosen["export_onnx"]
    assert "DataQuality" in chosen["evaluate"]["evaluators"][-1]


def test_a_head_is_exported_once_for_the_content_of_its_files(weights: Path, cache: Path) -> None:
    file = weights / "mobile.safetensors"
    state = file.stat()
    for read, changed, heads in ((0, 0, 1), (10**9, 0, 1), (0, 10**9, 2)):
        os.utime(file, ns=(state.st_atime_ns + read, state.st_mtime_ns + changed))
        pointer_of_weights(file)
        assert len(list(cache.rglob("head.json"))) == heads


@pytest.mark.usefixtures("cache")
def test_where_needs_no_run(weights: Path, tmp_path: Path, command: Command) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    picture = tmp_path / "where.png"
    arguments = ("where", tmp_path / "image.png", "dog", "--weights", weights / "mobile.safetensors")
    for extra in ((), ("--accurate",)):
        result = command(*arguments, "--picture", picture, *extra)
        assert result.exit_code == 0, result.output
        assert "'dog'" in result.output
        assert "probability" in result.output
        assert Image.open(picture).size == (90, 60)
    result = command(*arguments, "--run", tmp_path)
    assert "exclude each other" in result.output
