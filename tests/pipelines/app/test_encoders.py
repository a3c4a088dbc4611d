"""Encoders of ``bifocal index`` by name, from a hub on loopback: in both layouts, with and without
torch."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import bifocal
from bifocal.backbones import packages
from bifocal.backbones.hub import download_size
from bifocal.backbones.networks import small_networks
from bifocal.onnx.files import model_hash
from bifocal.search.collection.collection import Collection
from bifocal.serving.service.models import RunSource
from pipelines.app import encoders
from pipelines.app.training.recipe import compose
from tests.bifocal.contrastive import write_clip, write_multilingual
from tests.bifocal.hub_server import Hub, serve_hub
from tests.bifocal.tiny_transformer import write_tiny_transformer
from tests.bifocal.towers import write_immich
from tests.pipelines.app.conftest import Command

LIGHT = (
    "import sys; sys.modules.update(torch=None, timm=None, onnx=None); from pipelines.app "
    "import main; main()"
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with CLIP in the layout of Immich, and with a multilingual model's weights."""
    folder = tmp_path_factory.mktemp("hub")
    write_immich(write_clip(folder / "clip"), folder / "root" / encoders.NAMED["clip"])
    write_multilingual(folder / "root" / "timm" / "ViT-B-16-SigLIP2")
    with serve_hub(folder / "root") as hub:
        yield hub


@pytest.fixture
def pictures(photos: Path, tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for file in sorted(photos.rglob("*.jpg"))[:4]:
        shutil.copy(file, tmp_path / "pictures")
    return tmp_path / "pictures"


def vectors_of(weights: Path, files: list[Path], sentences: list[str]) -> tuple[Any, Any]:
    """Return the vectors of images and of sentences by open_clip."""
    name = f"local-dir:{weights}"
    model, preprocess = open_clip.create_model_from_pretrained(name)
    pixels = torch.stack([preprocess(Image.open(file)) for file in files])
    with torch.inference_mode():
        texts = model.eval().encode_text(open_clip.get_tokenizer(name)(sentences), normalize=True)
        return model.encode_image(pixels, normalize=True).numpy(), texts.numpy()


def check_run(run: Path, weights: Path, pictures: Path, sentences: list[str]) -> None:
    """Compare the collection and the service of a run with open_clip."""
    files = sorted(pictures.iterdir())
    images, texts = vectors_of(weights, files, sentences)
    collection = Collection.open(run / "artifacts" / "collection")
    rows = [collection.ids.index(file.name) for file in files]
    np.testing.assert_allclose(np.asarray(collection.vectors)[rows], images, atol=1e-3)  # float16
    served = RunSource(run).load()
    for sentence, text in zip(sentences, texts, strict=True):
        found = {hit.id: hit.score for hit in served.search(sentence, k=4)}
        for file, image in zip(files, images, strict=True):
            assert found[file.name] == pytest.approx(float(image @ text), abs=2e-3)


def test_clip_needs_no_torch(hub: Hub, pictures: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[4]),
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(tmp_path / "hub"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    run = tmp_path / "runs" / "pictures-index"
    copy = tmp_path / "model"
    for arguments in (
        ("index", pictures, "--encoder", "clip"),
        ("search", "a red star"),
        ("export", copy),
    ):
        process = subprocess.run(
            [sys.executable, "-c", LIGHT, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert process.returncode == 0, process.stderr
    published = hub.root / encoders.NAMED["clip"]
    for file in (
        "visual/model.onnx",
        "visual/preprocess_cfg.json",
        "textual/model.onnx",
        "textual/tokenizer.json",
    ):
        assert (copy / file).read_bytes() == (published / file).read_bytes()  # the layout of Immich
    sentences = ["a red star", "Two CATS, it's 3 o'clock!"]
    check_run(run, hub.root.parent / "clip", pictures, sentences)


@pytest.mark.slow
def test_a_model_of_open_clip_answers_in_german_and_japanese(
    hub: Hub, pictures: Path, tmp_path: Path, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    result = command(
        "index", pictures, "--encoder", "ViT-B-16-SigLIP2__webli", "--folder", tmp_path / "index"
    )
    assert result.exit_code == 0, result.output
    asked = len(hub.requests)
    again = command("index", pictures, "--folder", tmp_path / "index")
    assert "4 images can be searched: 0 new" in again.output
    assert len(hub.requests) == asked
    assert "initialized randomly" not in caplog.text
    weights = hub.root / "timm" / "ViT-B-16-SigLIP2"
    check_run(
        tmp_path / "index",
        weights,
        pictures,
        ["Ein Hund rennt durch den Schnee!", "犬が雪の中を走る"],
    )
    # The weights in a folder are the same encoders.
    assert encoders.encoder_folder("siglip2", weights) == encoders.encoder_folder(
        str(weights), None
    )
    # A training takes torch weights: the same model by open_clip's name.
    _, file = encoders.torch_encoder("siglip2", None)
    assert file.read_bytes() == (weights / "open_clip_model.safetensors").read_bytes()
    with pytest.raises(
        FileNotFoundError, match=r"laion/CLIP-ViT-B-32-laion2B-s34B-b79K/tree/main has the files"
    ):
        encoders.torch_encoder("clip", None)


@pytest.mark.slow
def test_a_collection_without_captions_is_calibrated_by_names(
    hub: Hub, photos: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pipelines.app.index_folder", "bifocal.search.calibration.fitting"):
        monkeypatch.setattr(f"{module}.MIN_ITEMS", 20)
    run = tmp_path / "index"
    result = command("index", photos, "--encoder", "clip", "--folder", run)
    assert result.exit_code == 0, result.output
    found = RunSource(run).load().search("a zebra", k=3)
    assert found.relevance == found[0].probability is not None
    assert {hit.relevance for hit in found} in ({"perhaps"}, {"nothing"})
    monkeypatch.delattr(
        "pipelines.app.index_folder.Embedder"
    )  # the cache has the vectors of the names
    (photos / "a copy.jpg").write_bytes(next(photos.rglob("*.jpg")).read_bytes())
    try:
        assert "1 new, 0 changed" in command("index", photos, "--folder", run).output
    finally:
        (photos / "a copy.jpg").unlink()
    assert RunSource(run).load().search("a zebra", k=3).relevance is not None
    assert "'bifocal where' needs the encoder small beside this one: pip install" in result.output
    with pytest.raises(
        FileNotFoundError, match=r"do not show where a phrase is: install the encoder small"
    ):
        bifocal.load(run).where(next(photos.rglob("*.jpg")), "a zebra")


def test_the_pointing_head_of_small_is_beside_other_encoders(
    hub: Hub, pictures: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = tmp_path / "head"
    head.mkdir()
    (head / "head.json").write_text("{}")
    run = tmp_path / "index"
    assert command("index", pictures, "--encoder", "clip", "--folder", run).exit_code == 0
    onnx = run / "artifacts" / "onnx"
    digest = model_hash(onnx)
    assert not (onnx / "pointing").exists()
    monkeypatch.setattr(
        encoders, "small_pointing", lambda: head
    )  # the extra small is installed later
    for _ in range(2):
        result = command("index", pictures, "--folder", run)
        assert "4 images can be searched: 0 new, 0 changed" in result.output
        assert (onnx / "pointing" / "head.json").read_text() == "{}"
        assert model_hash(onnx) == digest


def test_without_options_the_best_encoder_at_hand_indexes(
    hub: Hub, pictures: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run, before = tmp_path / "index", hub.got("model.onnx")
    size = sum(
        file.stat().st_size
        for file in (hub.root / encoders.NAMED["clip"]).rglob("*")
        if file.is_file()
    )
    asked = command("index", pictures, "--folder", run)
    assert (
        f"encoder clip: a download of {size / 1e6:,.0f} MB, of {encoders.NAMED['clip']} on a hub"
        in asked.output
    )
    assert (
        "add --yes to download it, or name another encoder, such as --encoder small" in asked.output
    )
    assert hub.got("model.onnx") == before
    assert (
        "download: the encoder" in command("index", pictures, "--folder", run, "--dry-run").output
    )
    assert (
        "4 images can be searched: 4 new"
        in command("index", pictures, "--folder", run, "--yes").output
    )
    for offline in (False, True):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
        cached = command("index", pictures, "--folder", tmp_path / f"cached {offline}")
        assert "encoder clip: its files are in the cache of the hub" in cached.output
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other cache"))
    monkeypatch.setattr(packages, "packaged_folder", lambda _: None)
    with pytest.raises(
        FileNotFoundError,
        match=r"no encoder is at hand, .* with a network .*'\S+\[search,small,cpu\]'",
    ):
        encoders.best_encoder()
    monkeypatch.setattr(packages, "packaged_folder", lambda _: tmp_path)
    assert encoders.best_encoder()[::2] == ("small", 0)
    file = tmp_path / "weights.safetensors"
    file.touch()
    monkeypatch.setenv("BIFOCAL_WEIGHTS", str(file))
    assert encoders.best_encoder() == ("small", "BIFOCAL_WEIGHTS names its networks", 0)


def test_a_hub_that_does_not_answer_is_not_waited_for(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.backbones.hub.LOOK_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(
            "huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        start = time.monotonic()
        assert download_size("owner/name", ["*"]) is None
        assert time.monotonic() - start < 5
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
    assert download_size("owner/nothing", ["*"]) is None


def test_the_networks_of_small_are_downloaded(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BIFOCAL_WEIGHTS", raising=False)
    monkeypatch.setattr(packages, "packaged_folder", lambda _: None)
    backbone = hub.root / packages.BACKBONE
    backbone.mkdir()
    with torch.random.fork_rng(devices=[]):
        network = timm.create_model("tf_efficientnet_lite2")
    save_file(network.state_dict(), backbone / "model.safetensors")
    write_tiny_transformer(["a photo of a dog"], folder=hub.root / packages.SENTENCES)
    found = small_networks()
    assert found.backbone.read_bytes() == (backbone / "model.safetensors").read_bytes()
    assert found.sentences is not None
    assert (found.sentences / "tokenizer.json").is_file()
    asked = len(hub.requests)
    assert small_networks() == found
    assert len(hub.requests) == asked
    # A training takes both, also by default.
    values = compose(str(tmp_path / "photos"), None, (), (), "small").values
    assert compose(str(tmp_path / "photos"), None, (), ()).values == values
    assert values["extract_features"]["weights"] == "Pretrained"


def test_wrong_names_say_what_to_do(
    hub: Hub, pictures: Path, tmp_path: Path, command: Command
) -> None:
    (tmp_path / "empty").mkdir()
    page = (
        f"{hub.address}/%s/tree/main has the files; put them into a folder, and name it with "
        "--weights"
    )
    cases = {
        "clib": "there is no encoder 'clib'; did you mean 'clip'? Known are small, clip, siglip2, "
        "multilingual, a repo",
        "ViT-B-32__laion": "open_clip names no repository for ViT-B-32__laion; its weights: openai, "
        "laion400m_e31",
        "siglip2": page % "immich-app/ViT-B-16-SigLIP2__webli",
        "owner/nothing": page % "owner/nothing",
        str(
            tmp_path / "empty"
        ): f"{tmp_path / 'empty'} has no encoders: expected visual/model.onnx and textual/",
    }
    for name, message in cases.items():
        found = str(
            command("index", pictures, "--encoder", name, "--folder", tmp_path / "index").exception
        )
        assert message in found, found
