"""Stage extract_features on small scenes: weights of every source, shards, and runs that are
killed."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore, open_features
from bifocal.features.base import ImageRegions
from bifocal.features.extraction import write_features
from bifocal.features.extractors import Grid
from bifocal.image_encoders import BEANEncoder
from bifocal.training.weights import base as trained_weights
from components.extract_features import run as stage
from tests.bifocal.datasets.small import write_scenes
from tests.components.extract_features.section import GRID, MODEL, PIXELS, validated


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_scenes(folder, 16, 4, 4)
    return folder


@pytest.fixture(scope="module")
def trained(
    dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, float]]:
    """The features of a Grid whose backbone is trained on phrases, and the metrics of the stage."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, stage.run(validated(), dataset=dataset, features=folder)


def artifact(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_backbone_trained_on_phrases_fills_the_store(
    dataset: Path, trained: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    folder, metrics = trained
    store = FeatureStore(folder)
    assert (metrics["images"], metrics["regions"], metrics["dim"]) == (24, 16, 24)
    assert (len(store), store.regions, store.dim) == (24, 16, 24)
    assert 0 < metrics["word_ap"] <= 1
    assert (store.metadata["extractor"], store.metadata["backbone"]) == ("Grid", "resnet10t")
    assert len(store.metadata["weights"]) == 64
    assert stage.run(validated(), dataset=dataset, features=empty(tmp_path / "again")) == metrics
    assert artifact(tmp_path / "again") == artifact(folder)


def test_proposals_train_the_same_network_as_a_grid(
    dataset: Path, trained: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    pytest.importorskip("cv2.ximgproc")
    proposals = GRID | {"name": "Proposals", "resize": "square", "regions": 5, "search_size": 64}
    stage.run(validated(extractor=proposals), dataset=dataset, features=tmp_path)
    weights = "weights.safetensors"
    assert (tmp_path / weights).read_bytes() == (trained[0] / weights).read_bytes()
    assert FeatureStore(tmp_path).regions == 5


def test_run_killed_in_training_and_extraction_resumes_to_the_same_bytes(
    dataset: Path,
    trained: tuple[Path, dict[str, float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in (
        (trained_weights, "keep"),
        (stage, "FeatureWriter"),
        (stage, "write_features"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, _die)
            with pytest.raises(KeyboardInterrupt):
                stage.run(validated(), dataset=dataset, features=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("bifocal.features.extractors.grid.Grid.extract", _die)
        with pytest.raises(KeyboardInterrupt):
            stage.run(validated(), dataset=dataset, features=tmp_path)
    folder, metrics = trained
    assert stage.run(validated(), dataset=dataset, features=tmp_path) == metrics
    assert artifact(tmp_path) == artifact(folder)


def test_onnx_runtime_fills_the_store_also_after_a_kill(
    dataset: Path,
    trained: tuple[Path, dict[str, float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = validated(
        weights={"name": "FromFile", "path": str(trained[0] / "weights.safetensors")}
    )
    monkeypatch.setattr("bifocal.export.extraction.FEWEST", 24)
    folder, killed = tmp_path / "features", empty(tmp_path / "killed")
    stage.run(params, dataset=dataset, features=empty(folder))
    of_torch, of_onnx = (FeatureStore(each).gather(range(24)) for each in (trained[0], folder))
    torch.testing.assert_close(of_onnx.features, of_torch.features, rtol=2e-3, atol=1e-3)
    assert of_onnx.boxes.equal(of_torch.boxes)
    with monkeypatch.context() as patch:
        patch.setattr("bifocal.features.extractors.grid.Grid.extract", _die)  # torch would call it
        patch.setattr(
            stage,
            "write_features",
            lambda records, *args, **named: write_features(_first(records), *args, **named),
        )
        with pytest.raises(KeyboardInterrupt):
            stage.run(params, dataset=dataset, features=killed)
    assert len(FeatureStore(killed)) == 7
    stage.run(params, dataset=dataset, features=killed)
    assert artifact(killed) == artifact(folder)


def _first(records: Iterator[tuple[str, ImageRegions]]) -> Iterator[tuple[str, ImageRegions]]:
    yield from islice(records, 10)
    raise KeyboardInterrupt


def _die(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_weights_are_loaded_from_a_file(dataset: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    path = tmp_path / "weights.safetensors"
    save_file(Grid("resnet10t", size=64, model_arguments=MODEL).backbone.network.state_dict(), path)
    params = validated(weights={"name": "FromFile", "path": str(path)})
    metrics = stage.run(params, dataset=dataset, features=empty(tmp_path / "features"))
    assert metrics == {"images": 24, "regions": 16, "dim": 24}


@pytest.fixture(scope="module")
def classified(
    dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, float]]:
    """Pixels whose backbone and adaptation are trained as a classifier, and the metrics of the
    stage."""
    folder = tmp_path_factory.mktemp("pixels")
    weights = {"name": "TrainClassifier", "task": "shapes", "maps": 9, "epochs": 1, "batch_size": 8}
    return folder, stage.run(
        validated(extractor=PIXELS, weights=weights), dataset=dataset, features=folder
    )


def test_pixels_keep_the_classifier_that_an_encoder_starts_from(
    classified: tuple[Path, dict[str, float]],
) -> None:
    folder, metrics = classified
    assert 0 < metrics["classifier_ap"] <= 1
    encoder = BEANEncoder(dim=5, maps=9, backbone="resnet10t", model_arguments=MODEL)
    encoder.load_pretrained(folder)
    assert encoder.adaptation.weight.equal(
        load_file(folder / "weights.safetensors")["adaptation.weight"]
    )
    assert FeatureStore(folder).gather([0]).features.shape == (1, 3, 64, 64)


def test_image_files_keep_weights_and_no_pixels(
    dataset: Path, classified: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    weights = {"name": "FromFile", "path": str(classified[0] / "weights.safetensors")}
    params = validated(
        extractor=PIXELS | {"name": "ImageFiles", "resize": "square"}, weights=weights
    )
    for shard in ("1/2", "2/2"):
        stage.run(params, dataset=dataset, features=tmp_path, shard=shard)
    pixels, files = FeatureStore(classified[0]), open_features(tmp_path, read_dataset(dataset))
    assert files.image_ids == pixels.image_ids
    assert files.gather(range(24)).features.equal(pixels.gather(range(24)).features)
    stored = [
        sum(path.stat().st_size for path in folder.glob("*.arrow"))
        for folder in (classified[0], tmp_path)
    ]
    assert stored[1] < stored[0] / 20
    encoder = BEANEncoder(dim=5, maps=9, backbone="resnet10t", model_arguments=MODEL)
    encoder.load_pretrained(tmp_path)
    assert encoder.adaptation.weight.equal(
        load_file(classified[0] / "weights.safetensors")["adaptation.weight"]
    )
