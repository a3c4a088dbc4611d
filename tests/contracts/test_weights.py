"""Promises of every registered source of weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from bifocal import registry
from bifocal.backbones.timm.backbone import TimmBackbone
from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor, FeatureReader
from bifocal.training.weights.base import Weights
from bifocal.training.weights.source import OpenedSource, open_source

PACKAGE, EXTRACTORS = "bifocal.training.weights", "bifocal.features.extractors"
WEIGHTS = registry.registered(PACKAGE)
MODEL = {"channels": [8, 16, 24, 32], "stem_width": 8}
SMALL: dict[str, Any] = {"backbone": "resnet10t", "size": 32, "model_arguments": MODEL}
FITTING = {"TrainClassifier": "Pixels"}
"""An extractor that the weights fit; Grid for the others."""
ARGUMENTS: dict[str, dict[str, Any]] = {
    "FromFile": {"path": "weights.safetensors"},
    "TrainClassifier": {"task": "shape", "maps": 5, "epochs": 1, "batch_size": 4},
    "TrainOnPhrases": {"epochs": 1, "batch_size": 4, "min_count": 1},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Eight images with a phrase, a box and a label each; half of them in each of two splits."""
    root, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    ids = [f"image{number}" for number in range(8)]
    for image_id in ids:
        Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(
            root / f"{image_id}.png"
        )
    names = ["ball", "cube"] * 4
    frame = {
        "image_id": ids,
        "path": [f"{image_id}.png" for image_id in ids],
        "split": ["train"] * 4 + ["val"] * 4,
    }
    images = pd.DataFrame({**frame, "width": 32, "height": 32})
    captions = pd.DataFrame(
        {"caption_id": range(8), "image_id": ids, "text": [f"one {name} here" for name in names]}
    )
    boxes = [[np.array([4.0, 4.0, 20.0, 20.0], np.float32)]] * 8
    phrases = pd.DataFrame(
        {"phrase_id": range(8), "image_id": ids, "phrase": names, "boxes": boxes}
    )
    labels = pd.DataFrame({"image_id": ids, "task": "shape", "label": names, "value": 1.0})
    return Dataset(images, captions, phrases, root, labels)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that timm would download."""

    def state(backbone: TimmBackbone) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(7)
        return {
            name: torch.rand(tensor.shape, generator=generator).to(tensor.dtype)
            for name, tensor in backbone.network.state_dict().items()
        }

    monkeypatch.setattr(TimmBackbone, "pretrained_state", state)


def new_extractor(name: str) -> FeatureExtractor:
    torch.manual_seed(0)
    extractor: FeatureExtractor = registry.build(
        EXTRACTORS, {"name": FITTING.get(name, "Grid"), **SMALL}
    )
    return extractor


def new_weights(name: str, folder: Path) -> Weights:
    arguments = dict(ARGUMENTS.get(name, {}))
    if "path" in arguments:
        arguments["path"] = str(folder / arguments["path"])
        torch.manual_seed(3)
        source: FeatureExtractor = registry.build(EXTRACTORS, {"name": "Grid", **SMALL})
        save_file(source.backbone.network.state_dict(), arguments["path"])
    weights: Weights = registry.build(PACKAGE, {"name": name, **arguments})
    return weights


def prepare(
    name: str, dataset: Dataset, folder: Path
) -> tuple[FeatureExtractor, str, dict[str, float]]:
    folder.mkdir(exist_ok=True)
    extractor, weights = new_extractor(name), new_weights(name, folder.parent)
    digest, metrics = weights.prepare(extractor, dataset, folder, seed=1)
    return extractor, digest, metrics


def state(extractor: FeatureExtractor) -> dict[str, torch.Tensor]:
    return dict(extractor.backbone.network.state_dict())


@pytest.mark.parametrize("name", sorted(WEIGHTS))
class TestEverySourceOfWeights:
    def test_changes_the_network_and_leaves_it_frozen(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        before, (extractor, _, _) = (
            state(new_extractor(name)),
            prepare(name, dataset, tmp_path / "features"),
        )
        assert any(not tensor.equal(before[key]) for key, tensor in state(extractor).items())
        assert not extractor.backbone.network.training
        assert not any(weight.requires_grad for weight in extractor.backbone.network.parameters())

    def test_returns_the_digest_and_metrics_in_zero_to_one(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        _, digest, metrics = prepare(name, dataset, tmp_path / "features")
        assert len(digest) == 64
        assert all(0 <= value <= 1 for value in metrics.values())
        assert bool(metrics) != WEIGHTS[name].shardable

    def test_repeats_itself_in_another_directory(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        first, second = (prepare(name, dataset, tmp_path / folder) for folder in ("one", "two"))
        assert first[1:] == second[1:]
        assert all(tensor.equal(state(second[0])[key]) for key, tensor in state(first[0]).items())

    def test_keeps_the_weights_and_does_not_train_twice(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        extractor, digest, metrics = prepare(name, dataset, tmp_path / "features")
        kept = load_file(tmp_path / "features" / "weights.safetensors")
        assert all(tensor.equal(kept[key]) for key, tensor in state(extractor).items())
        images = dataset.images.iloc[:0] if not WEIGHTS[name].shardable else dataset.images
        again = Dataset(
            images, dataset.captions, dataset.phrases, dataset.image_root, dataset.labels
        )
        resumed, *results = prepare(name, again, tmp_path / "features")
        assert results == [digest, metrics]
        assert all(tensor.equal(state(extractor)[key]) for key, tensor in state(resumed).items())

    def test_is_shardable_unless_it_trains(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        def open_shard() -> OpenedSource:
            extractor = {"name": FITTING.get(name, "Grid"), **SMALL}
            return open_source(
                extractor, weights, dataset, tmp_path, batch_size=4, seed=1, sharded=True
            )

        weights = {"name": name, **ARGUMENTS.get(name, {})}
        if "path" in weights:
            new_weights(name, tmp_path)
            weights["path"] = str(tmp_path / weights["path"])
        if WEIGHTS[name].shardable:
            assert len(open_shard().metadata["weights"]) == 64
        else:
            with pytest.raises(ValueError, match="every shard would learn a network of its own"):
                open_shard()

    def test_says_which_extractors_it_fits(self, name: str) -> None:
        for extractor, part in registry.registered(EXTRACTORS).items():
            if issubclass(part, FeatureReader):
                continue
            arguments = registry.all_arguments(EXTRACTORS, extractor) | {"resize": "square"}
            reason = WEIGHTS[name].mismatch(part, arguments)
            assert reason is None or (name in reason and extractor in reason)
            if extractor == FITTING.get(name, "Grid"):
                assert reason is None

    def test_arguments_out_of_range_are_conflicts(self, name: str) -> None:
        valid = ARGUMENTS.get(name, {})
        assert list(WEIGHTS[name].conflicts(valid)) == []
        for argument in registry.all_arguments(PACKAGE, {"name": name, **valid}).keys() & {
            "epochs",
            "learning_rate",
        }:
            assert any(
                argument in message for message in WEIGHTS[name].conflicts({**valid, argument: 0})
            )
