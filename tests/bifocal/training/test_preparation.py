"""Data and model of a training from references to parts."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal import registry
from bifocal.models import load_model, save_model
from bifocal.registry import build, register
from bifocal.scores import Scores
from bifocal.training import TrainingPhase, new_model, prepare_inputs, train_phases
from bifocal.training.batches import CaptionBatches

ARGUMENTS: dict[str, Any] = {
    "corpus": {"name": "Scenes", "train": 10, "val": 4, "test": 2, "size": 64},
    "extractor": {
        "name": "Grid",
        "backbone": "resnet10t",
        "stage": 3,
        "size": 64,
        "model_arguments": {"channels": [8, 8, 8, 8], "stem_width": 8},
    },
    "weights": {"name": "TrainOnPhrases", "epochs": 1, "min_count": 2},
    "vectorizer": {"name": "Word2Vec", "dim": 8, "epochs": 1},
}
MODEL = {
    "name": "TwoBranchModel",
    "dim": 6,
    "image_encoder": "SMILEEncoder",
    "text_encoder": "GRUEncoder",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the data of ``ARGUMENTS``."""
    home = tmp_path_factory.mktemp("prepared")
    prepare_inputs(home, **ARGUMENTS)
    return home


def files(home: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}


def test_inputs_hold_every_image_and_caption(home: Path) -> None:
    inputs = prepare_inputs(home, **ARGUMENTS)
    assert inputs.dataset.images["split"].value_counts().to_dict() == {
        "train": 10,
        "val": 4,
        "test": 2,
    }
    assert inputs.features.image_ids == inputs.dataset.images["image_id"].tolist()
    assert (inputs.features.regions, inputs.features.dim) == (16, 8)
    assert len(inputs.captions("train")) == 50


def test_second_call_writes_nothing(home: Path) -> None:
    before = files(home)
    prepare_inputs(str(home), **ARGUMENTS)
    assert files(home) == before


def test_another_part_gets_a_folder_of_its_own(home: Path) -> None:
    before = set(home.iterdir())
    inputs = prepare_inputs(home, **ARGUMENTS | {"vectorizer": "TFIDF"})
    assert [path.name.partition("-")[0] for path in set(home.iterdir()) - before] == ["text"]
    assert inputs.text.format.name == "sparse"


def test_interrupted_call_starts_again(home: Path) -> None:
    with pytest.raises(ValueError, match="min_count is 0"):
        prepare_inputs(home, **ARGUMENTS | {"weights": {"name": "TrainOnPhrases", "min_count": 0}})
    assert not any(path.suffix == ".partial" for path in home.iterdir())
    inputs = prepare_inputs(
        home, **ARGUMENTS | {"weights": {"name": "TrainOnPhrases", "epochs": 1, "min_count": 3}}
    )
    assert len(inputs.features) == 16


def test_model_has_the_word_vectors_and_is_saved_with_its_inputs(
    home: Path, tmp_path: Path
) -> None:
    inputs = prepare_inputs(home, **ARGUMENTS)
    model = new_model(MODEL, inputs, seed=3)
    assert model.word_embedding is not None
    torch.testing.assert_close(model.word_embedding.weight.data, inputs.text.word_vectors)
    other = new_model(MODEL, inputs, seed=3)
    assert all(
        a.equal(b)
        for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    )
    save_model(tmp_path, model)
    assert load_model(tmp_path).config == model.config


def test_own_class_is_a_part_of_its_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTERED", {})  # other tests list the parts

    @register("bifocal.losses")
    class SumOfNegatives(nn.Module):
        def __init__(self, weight: float = 1.0) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, scores: Scores, matches: Tensor) -> Tensor:
            return self.weight * (scores.cross * ~matches).sum()

    loss = build(
        "bifocal.losses",
        {"name": "WeightedSumLoss", "losses": [{"name": "SumOfNegatives", "weight": 2.0}]},
    )
    assert loss(Scores(torch.ones(2, 2)), torch.eye(2, dtype=torch.bool)) == 4.0
    inputs = prepare_inputs(home, **ARGUMENTS)
    phase = TrainingPhase(CaptionBatches(batch_size=25), loss, epochs=1, learning_rate=0.01)
    result = train_phases(new_model(MODEL, inputs), [phase], inputs)
    assert math.isfinite(result.best["loss"])
    with pytest.raises(ValueError, match="losses has no 'SumOfPositives'"):
        build("bifocal.losses", "SumOfPositives")
    with pytest.raises(ValueError, match="has a TripletLoss already"):
        register("bifocal.losses")(type("TripletLoss", (), {}))
