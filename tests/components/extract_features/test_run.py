"""Stage extract_features on small scenes: weights of every source, shards, and runs that are killed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from bifocal.backbones.weights import train_on_phrases
from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.features import FeatureStore, open_features
from bifocal.features.extractors import Grid
from bifocal.image_encoders import BEANEncoder
from bifocal.registry import registered
from components.extract_features import run as stage
from components.extract_features.spec import COMPONENT, WEIGHTS, ExtractFeaturesParams
from runtime import parameters
from runtime.parameters import ParameterError

MODEL = {"channels": [8, 16, 24, 32], "stem_width": 8}
GRID = {"name": "Grid", "backbone": "resnet10t", "stage": 3, "size": 64, "model_arguments": MODEL}
PIXELS = {"name": "Pixels", "size": 64, "backbone": "resnet10t", "model_arguments": MODEL}
RMAC = {"name": "RMAC", "size": 64, "dim": 4, "backbone": "resnet10t", "model_arguments": MODEL}
SECTION: dict[str, Any] = {
    "extractor": GRID,
    "weights": {"name": "TrainOnPhrases", "epochs": 2, "batch_size": 8, "learning_rate": 0.004, "min_count": 2},
    "batch_size": 8,
    "images_per_file": 7,
}
README = Path(__file__).parents[3] / "components" / "extract_features" / "README.md"


def validated(**changes: object) -> ExtractFeaturesParams:
    sections = parameters.validate({"seed": 0, "extract_features": {**SECTION, **changes}}, [COMPONENT])
    params = sections["extract_features"]
    assert isinstance(params, ExtractFeaturesParams)
    return params


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    corpus = Scenes(train=16, val=4, test=4, size=64).read(folder / "images")
    write_dataset(folder, "Scenes", corpus, copy_images=True, max_pixels=10_000, max_rejected_fraction=0.0)
    return folder


@pytest.fixture(scope="module")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
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
    dataset: Path, trained: tuple[Path, dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((train_on_phrases, "keep"), (stage, "FeatureWriter"), (stage, "write_features")):
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
def classified(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """Pixels whose backbone and adaptation are trained as a classifier, and the metrics of the stage."""
    folder = tmp_path_factory.mktemp("pixels")
    weights = {"name": "TrainClassifier", "task": "shapes", "maps": 9, "epochs": 1, "batch_size": 8}
    return folder, stage.run(validated(extractor=PIXELS, weights=weights), dataset=dataset, features=folder)


def test_pixels_keep_the_classifier_that_an_encoder_starts_from(classified: tuple[Path, dict[str, float]]) -> None:
    folder, metrics = classified
    assert 0 < metrics["classifier_ap"] <= 1
    encoder = BEANEncoder(dim=5, maps=9, backbone="resnet10t", model_arguments=MODEL)
    encoder.load_pretrained(folder)
    assert encoder.adaptation.weight.equal(load_file(folder / "weights.safetensors")["adaptation.weight"])
    assert FeatureStore(folder).gather([0]).features.shape == (1, 3, 64, 64)


def test_image_files_keep_weights_and_no_pixels(
    dataset: Path, classified: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    weights = {"name": "FromFile", "path": str(classified[0] / "weights.safetensors")}
    params = validated(extractor=PIXELS | {"name": "ImageFiles", "resize": "square"}, weights=weights)
    for shard in ("1/2", "2/2"):
        stage.run(params, dataset=dataset, features=tmp_path, shard=shard)
    pixels, files = FeatureStore(classified[0]), open_features(tmp_path, read_dataset(dataset))
    assert files.image_ids == pixels.image_ids
    assert files.gather(range(24)).features.equal(pixels.gather(range(24)).features)
    stored = [sum(path.stat().st_size for path in folder.glob("*.arrow")) for folder in (classified[0], tmp_path)]
    assert stored[1] < stored[0] / 20
    encoder = BEANEncoder(dim=5, maps=9, backbone="resnet10t", model_arguments=MODEL)
    encoder.load_pretrained(tmp_path)
    assert encoder.adaptation.weight.equal(load_file(classified[0] / "weights.safetensors")["adaptation.weight"])


def test_rmac_keeps_its_whitening_and_shards_load_it(
    dataset: Path, classified: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    params = validated(extractor=RMAC, weights={"name": "FromFile", "path": str(classified[0] / "weights.safetensors")})
    stage.run(params, dataset=dataset, features=empty(tmp_path / "rmac"))
    store = FeatureStore(tmp_path / "rmac")
    assert (store.regions, store.dim) == (1, 4)
    norms = store.gather(range(24)).features.float().norm(dim=2)
    torch.testing.assert_close(norms, torch.ones(24, 1), rtol=0, atol=2e-3)

    with pytest.raises(ValueError, match="every shard would learn a whitening of its own"):
        stage.run(params, dataset=dataset, features=empty(tmp_path / "shard"), shard="2/2")
    whitened = {"name": "FromFile", "path": str(tmp_path / "rmac" / "weights.safetensors")}
    stage.run(validated(extractor=RMAC, weights=whitened), dataset=dataset, features=tmp_path / "shard", shard="2/2")
    shard = FeatureStore(tmp_path / "shard")
    assert shard.image_ids == store.image_ids[12:]
    assert shard.gather(range(12)).features.equal(store.gather(range(12, 24)).features)


ARRAYS = {"name": "ImageArrays", "path": "arrays"}
CLASSIFIER = {"name": "TrainClassifier", "task": "shapes"}
PHRASES = {"name": "TrainOnPhrases"}


@pytest.mark.parametrize(
    ("extractor", "weights", "message"),
    [
        (ARRAYS, None, "batch_size is 8, but ImageArrays runs no network: set it to null"),
        (ARRAYS, "Pretrained", "weights is Pretrained, but ImageArrays reads published files: set it to null"),
        (GRID, None, "weights is null, but Grid needs weights: name one of FromFile, Pretrained"),
        (PIXELS, PHRASES, "TrainOnPhrases trains a feature map, which Pixels does not have"),
        ("Proposals", PHRASES, "TrainOnPhrases needs images of one shape: set resize of Proposals to square"),
        (GRID, CLASSIFIER, "TrainClassifier trains the backbone of Pixels or ImageFiles, not of Grid"),
        (PIXELS, CLASSIFIER | {"path": "imagenet"}, "task is 'shapes' and path is 'imagenet': set task"),
        (PIXELS, "TrainClassifier", "task is None and path is None: set task"),
        (PIXELS, CLASSIFIER | {"start": PHRASES}, "start is TrainOnPhrases, expected weights that are not trained"),
        (GRID, PHRASES | {"epochs": 0}, "epochs is 0, expected at least 1"),
        (GRID, PHRASES | {"learning_rate": 0.0}, "learning_rate is 0.0, expected more than 0"),
        (GRID, "FromFile", r"weights\.path: missing, and FromFile has no default for it"),
        ({**GRID, "path": "arrays"}, "Pretrained", "Grid takes no 'path'"),
    ],
)
def test_contradictory_parameters_are_errors_before_any_work(extractor: object, weights: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        validated(extractor=extractor, weights=weights)


def test_extraction_with_a_network_needs_a_batch_size() -> None:
    with pytest.raises(ParameterError, match="batch_size is null, but Grid runs a network"):
        validated(batch_size=None)


def test_keys_of_version_0_1_are_errors_that_name_the_new_ones() -> None:
    former = {"features": GRID, "weights": None, "pretraining": None, "classifier": None, "source": None}
    with pytest.raises(ParameterError) as error:
        parameters.validate({"seed": 0, "extract_features": former | {"shard_size": 5}}, [COMPONENT])
    for line in (
        "extract_features.features is now extractor",
        "extract_features.pretraining is now weights: {name: TrainOnPhrases, ...}",
        "extract_features.classifier is now weights: {name: TrainClassifier, ...}",
        "extract_features.source is now the argument path",
        "extract_features.shard_size is now images_per_file",
    ):
        assert line in str(error.value)


@pytest.mark.parametrize(
    ("extractor", "weights", "shardable"),
    [
        (GRID, "Pretrained", True),
        (GRID, PHRASES, False),
        (PIXELS, CLASSIFIER, False),
        (RMAC, "Pretrained", False),
        (RMAC, {"name": "FromFile", "path": "weights.safetensors"}, True),
        (ARRAYS, None, True),
    ],
)
def test_extraction_is_shardable_unless_something_is_learned_first(
    extractor: object, weights: object, shardable: bool
) -> None:
    batch_size = None if weights is None else 8
    assert validated(extractor=extractor, weights=weights, batch_size=batch_size).shardable == shardable


def test_weights_agree_with_the_section_on_whether_shards_share_them() -> None:
    for name, part in registered(WEIGHTS).items():
        section = {"seed": 0, "extractor": "Grid", "weights": name, "batch_size": 1, "images_per_file": 1}
        assert ExtractFeaturesParams.model_validate(section).shardable == part.shardable, name


def test_user_paths_are_those_of_readers_and_weights() -> None:
    start = {"name": "FromFile", "path": "start.safetensors"}
    section = {"extractor": ARRAYS, "weights": CLASSIFIER | {"start": start}}
    assert COMPONENT.user_paths(section) == {
        ("extractor", "path"): "arrays",
        ("weights", "start", "path"): "start.safetensors",
    }


def test_sections_in_the_readme_are_valid() -> None:
    blocks = README.read_text().split("```yaml\n")[1:]
    assert blocks
    for block in blocks:
        validated(**json.loads(json.dumps(yaml.safe_load(block.split("```")[0])["extract_features"])))
