"""A folder of drawn scenes as a user would have it, and a run of ``bifocal train`` on it."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from bifocal.datasets.corpora import Scenes
from bifocal.durable import write_json
from pipelines.app import bifocal
from runtime import artifacts

RECIPE = """
prepare_dataset:
  corpus: {val: 0.2, test: 0.2}
extract_features:
  extractor:
    {name: Grid, backbone: resnet10t, size: 64, model_arguments: {channels: [8, 16, 24, 32], stem_width: 8}}
  weights: {name: TrainOnPhrases, epochs: 1, batch_size: 8, min_count: 3}
train_embedding:
  model: {dim: 16}
  phases: {0: {epochs: 3, batches: {batch_size: 40}}}
"""
"""A small backbone in place of the ImageNet weights, which timm would download."""


def write_photos(folder: Path) -> None:
    """Write 60 scenes with two captions each, and their phrases."""
    corpus = Scenes(train=60, val=0, test=0, size=64).read(folder)
    captions = pd.DataFrame(
        [(c.image_id, c.text) for c in corpus.captions], columns=["image_id", "caption"]
    )
    paths = {image.image_id: image.path for image in corpus.images}
    phrases: dict[str, list[object]] = {image_id: [] for image_id in paths}
    for phrase in corpus.phrases:
        phrases[phrase.image_id].append({"phrase": phrase.phrase, "boxes": phrase.boxes})
    captions = captions.groupby("image_id").head(2)
    captions["image"] = captions["image_id"].map(paths)
    first = ~captions["image_id"].duplicated()
    captions["phrases"] = (
        captions["image_id"].map(lambda image_id: json.dumps(phrases[image_id])).where(first, "")
    )
    captions[["image", "caption", "phrases"]].to_csv(folder / "captions.csv", index=False)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``write_photos``."""
    folder = tmp_path_factory.mktemp("user") / "photos"
    write_photos(folder)
    return folder


@pytest.fixture
def pictures(photos: Path, tmp_path: Path) -> Path:
    """Ten of the photographs without captions, and a broken file."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    for number, file in enumerate(sorted(photos.rglob("*.jpg"))[:10]):
        shutil.copy(file, folder / ("more" if number % 2 else ".") / f"{number}.jpg")
    (folder / "cut.jpg").write_bytes(file.read_bytes()[:60])
    return folder


def write_manifest(artifact: Path) -> None:
    """Write the manifest of an artifact, which the demo does not have."""
    files = artifacts.hash_files(artifact)
    write_json(artifact / artifacts.MANIFEST, {"schema_version": 1, "metrics": {}, "files": files})


Command = Callable[..., Result]


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Run ``bifocal`` in a folder of its own, with an MLflow store of its own."""
    folder = tmp_path_factory.mktemp("home")

    def run(*arguments: object) -> Result:
        # Other tests of this process need their own working directory and MLflow store.
        with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
            for name in (
                "MLFLOW_TRACKING_URI",
                "BIFOCAL_WEIGHTS",
            ):  # set first: what the command sets is then undone
                patch.setenv(name, "")
                patch.delenv(name)
            patch.setattr("bifocal.backbones.packages.packaged_folder", lambda _: None)
            return CliRunner().invoke(bifocal, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of ``RECIPE``."""
    file = tmp_path_factory.mktemp("recipe") / "small.yaml"
    file.write_text(RECIPE)
    return file


@pytest.fixture(scope="session")
def trained(
    command: Command, photos: Path, recipe: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The run folder of ``bifocal train``."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    result = command(
        "train", photos, "--run", folder, "--recipe", recipe, "--set", "seed=3", "--budget", "1h"
    )
    assert result.exit_code == 0, result.output
    assert "images of 64 pixels, 20 epochs" in result.output
    assert "All 60 images are used" in result.output
    assert "60 images can be searched" in result.output
    return folder
