import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from bifocal.datasets import write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.features import FeatureStore
from bifocal.features.extractors import Grid
from bifocal.image_encoders import BEANEncoder
from components.extract_features import learning
from components.extract_features import run as stage
from components.extract_features.spec import COMPONENT, ExtractFeaturesParams
from runtime import parameters
from runtime.parameters import ParameterError

MODEL = {"channels": [8, 16, 24, 32], "stem_width": 8}
SECTION: dict[str, Any] = {
    "features": {"name": "Grid", "backbone": "resnet10t", "stage": 3, "size": 64, "model_arguments": MODEL},
    "weights": None,
    "pretraining": {
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 0.004,
        "weight_decay": 0.05,
        "min_count": 2,
        "positive_weight": 5.0,
        "scene_weight": 0.02,
    },
    "classifier": None,
    "source": None,
    "batch_size": 8,
    "shard_size": 7,
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


def artifact(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_backbone_trained_here_fills_the_store(dataset: Path, tmp_path: Path) -> None:
    figures = stage.run(validated(), dataset=dataset, features=made(tmp_path / "a"))
    store = FeatureStore(tmp_path / "a")
    assert (
        (figures["images"], figures["regions"], figures["dim"])
        == (24, 16, 24)
        == (len(store), store.regions, store.dim)
    )
    assert 0 < figures["word_ap"] <= 1
    assert store.metadata["kind"] == "Grid"
    assert store.metadata["backbone"] == "resnet10t"
    assert len(store.metadata["weights"]) == 64
    assert stage.run(validated(), dataset=dataset, features=made(tmp_path / "b")) == figures
    assert artifact(tmp_path / "a") == artifact(tmp_path / "b")


def test_proposals_learn_the_network_that_a_grid_learns(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("cv2.ximgproc")
    boxes = {**SECTION["features"], "name": "Proposals", "resize": "square", "regions": 5, "search_size": 64}
    learnt = []
    for name, features in (("grid", SECTION["features"]), ("boxes", boxes)):
        stage.run(validated(features=features), dataset=dataset, features=made(tmp_path / name))
        learnt.append((tmp_path / name / "weights.safetensors").read_bytes())
    assert learnt[0] == learnt[1]
    assert FeatureStore(tmp_path / "boxes").regions == 5
    pixels = {"name": "Pixels", "backbone": "resnet10t", "size": 64}
    with pytest.raises(ValueError, match="the backbone of Grid or Proposals, not of Pixels: set it to null"):
        stage.run(validated(features=pixels), dataset=dataset, features=made(tmp_path / "pixels"))


def test_killed_between_and_within_training_and_extraction(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = stage.run(validated(), dataset=dataset, features=made(tmp_path / "whole"))
    killed = made(tmp_path / "killed")
    for module, name in ((learning, "write_tensors"), (stage, "FeatureWriter"), (stage, "write_features")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, _die)
            with pytest.raises(KeyboardInterrupt):
                stage.run(validated(), dataset=dataset, features=killed)
    with monkeypatch.context() as patch:
        patch.setattr("bifocal.features.extractors.grid.Grid.extract", _die)
        with pytest.raises(KeyboardInterrupt):
            stage.run(validated(), dataset=dataset, features=killed)
    assert stage.run(validated(), dataset=dataset, features=killed) == figures
    assert artifact(killed) == artifact(tmp_path / "whole")


def _die(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_weights_from_a_file(dataset: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    path = tmp_path / "weights.safetensors"
    save_file(Grid("resnet10t", size=64, model_arguments=MODEL).backbone.network.state_dict(), path)
    params = validated(weights=str(path), pretraining=None)
    assert stage.run(params, dataset=dataset, features=made(tmp_path / "features")) == {
        "images": 24,
        "regions": 16,
        "dim": 24,
    }


def test_pixels_carry_a_classifier_and_rmac_its_whitening(dataset: Path, tmp_path: Path) -> None:
    pixels = {"name": "Pixels", "size": 64, "backbone": "resnet10t", "model_arguments": MODEL}
    learns = {"task": "shapes", "maps": 9, "epochs": 1, "batch_size": 8, "learning_rate": 0.001, "weight_decay": 0.0}
    learns |= {"train_backbone": True, "random_start": True}
    params = validated(features=pixels, pretraining=None, classifier=learns)
    figures = stage.run(params, dataset=dataset, features=made(tmp_path / "pixels"))
    assert 0 < figures["classifier_ap"] <= 1
    carried = tmp_path / "pixels" / "weights.safetensors"
    encoder = BEANEncoder(dim=5, maps=9, backbone="resnet10t", model_arguments=MODEL)
    encoder.load_pretrained(tmp_path / "pixels")
    assert encoder.adaptation.weight.equal(load_file(carried)["adaptation.weight"])
    assert FeatureStore(tmp_path / "pixels").gather([0]).features.shape == (1, 3, 64, 64)

    rmac = {"name": "RMAC", "size": 64, "dim": 4, "backbone": "resnet10t", "model_arguments": MODEL}
    params = validated(features=rmac, pretraining=None, weights=str(carried))
    stage.run(params, dataset=dataset, features=made(tmp_path / "rmac"))
    store = FeatureStore(tmp_path / "rmac")
    assert (store.regions, store.dim) == (1, 4)
    torch.testing.assert_close(
        store.gather(range(24)).features.float().norm(dim=2), torch.ones(24, 1), rtol=0, atol=2e-3
    )

    # A shard learns no whitening of its own, and takes that of an artifact.
    with pytest.raises(ValueError, match="every shard would learn a whitening of its own"):
        stage.run(params, dataset=dataset, features=made(tmp_path / "shard"), shard="2/2")
    params = validated(features=rmac, pretraining=None, weights=str(tmp_path / "rmac" / "weights.safetensors"))
    stage.run(params, dataset=dataset, features=tmp_path / "shard", shard="2/2")
    shard = FeatureStore(tmp_path / "shard")
    assert shard.image_ids == store.image_ids[12:]
    assert shard.gather(range(12)).features.equal(store.gather(range(12, 24)).features)


def test_weights_are_loaded_or_trained_not_both(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="set weights or pretraining to null"):
        validated(weights=str(tmp_path))


def test_the_readmes_sections_are_valid() -> None:
    blocks = README.read_text().split("```yaml\n")[1:]
    assert blocks
    for block in blocks:
        section = yaml.safe_load(block.split("```")[0])["extract_features"]
        whole = json.loads(json.dumps(section))
        validated(
            **{
                key: None
                for key in SECTION.keys() - whole.keys()
                if key in ("weights", "pretraining", "classifier", "source")
            }
            | whole
        )
