"""The stage embed_collection reads the features that the model was exported with in place of the
images."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bifocal.datasets import read_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.features import FeatureWriter
from bifocal.onnx.encoders import Embedder
from bifocal.search.collection.collection import Collection
from bifocal.search.trained_model import encode_file
from components.embed_collection.run import run
from components.embed_collection.spec import COMPONENT
from runtime import artifacts
from runtime.parameters import load, validate
from tests.bifocal.datasets.small import write_copies

ROOT = Path(__file__).parents[3]
GRAPHS = ROOT / "pipelines" / "app" / "demo_model" / "onnx"
Embed = Callable[..., Collection]


@pytest.fixture
def embed(tmp_path: Path) -> Embed:
    """``embed(scale, same)`` embeds scenes whose stored features are the backbone's times
    ``scale``."""
    corpus = Scenes(train=2, val=2, test=2, size=64).read(tmp_path / "images")
    partial = artifacts.open_partial(tmp_path / "dataset", {})
    write_copies(partial, corpus)
    artifacts.commit(partial, tmp_path / "dataset", {})
    dataset, embedder = read_dataset(tmp_path / "dataset"), Embedder(GRAPHS)

    def start(name: str, scale: float, same: bool) -> Collection:
        folder = tmp_path / name
        partial = artifacts.open_partial(folder / "features", {})
        ids = dataset.images["image_id"].tolist()
        cells = np.stack(
            embedder.read_images([encode_file(dataset.image_path(image_id)) for image_id in ids])
        )
        with FeatureWriter(
            partial, regions=cells.shape[1], dim=cells.shape[2], metadata={}
        ) as writer:
            for image_id, features in zip(ids, scale * cells, strict=True):
                writer.add(image_id, features)
        artifacts.commit(partial, folder / "features", {})
        partial = artifacts.open_partial(folder / "onnx", {})
        shutil.copytree(GRAPHS, partial, dirs_exist_ok=True)
        used = artifacts.artifact_hash(folder / "features") if same else "0" * 64
        artifacts.commit(partial, folder / "onnx", {"inputs": {"features": used}})
        values = load(ROOT / "params.yaml")
        params: Any = validate({key: values[key] for key in ("seed", COMPONENT.name)}, [COMPONENT])[
            COMPONENT.name
        ]
        (folder / "collection").mkdir()
        inputs = {
            "dataset": tmp_path / "dataset",
            "features": folder / "features",
            "onnx": folder / "onnx",
        }
        metrics = run(params, **inputs, collection=folder / "collection")
        assert metrics["embedded"] == len(ids)
        return Collection.open(folder / "collection")

    return start


def test_stored_features_give_the_vectors_of_the_images(embed: Embed) -> None:
    decoded, stored = embed("decoded", scale=1, same=False), embed("stored", scale=1, same=True)
    np.testing.assert_array_equal(stored.vectors[:], decoded.vectors[:])
    assert stored.items.drop_columns(["shard"]).equals(decoded.items.drop_columns(["shard"]))
    for row in range(len(stored)):
        for mine, theirs in zip(stored.regions(row) or (), decoded.regions(row) or (), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_features_of_another_extraction_are_not_read(embed: Embed) -> None:
    decoded = embed("decoded", scale=1, same=False)
    np.testing.assert_array_equal(
        embed("other", scale=-1, same=False).vectors[:], decoded.vectors[:]
    )
    assert not np.array_equal(embed("changed", scale=-1, same=True).vectors[:], decoded.vectors[:])
