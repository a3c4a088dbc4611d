"""A small model with a short training, images with joined captions, and phrases with boxes."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.losses import TripletLoss
from bifocal.models import TwoBranchModel, build_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer, load_vectorizer, write_text
from bifocal.training import FitOptions, TrainingPhase, fit
from bifocal.training.batches import CaptionBatches
from bifocal.training.batches.base import PreparedBatches
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phrase_pairs import PhraseBoxPairs
from bifocal.training.schedules import MultiStep
from bifocal.training.semantic_pairs import SemanticPairs
from bifocal.training.validators import model_ranks, recall_metrics

CONFIGURATION: dict[str, Any] = {
    "model": {
        "name": "TwoBranchModel",
        "dim": 16,
        "image_encoder": {"name": "SMILEEncoder"},
        "text_encoder": {"name": "SRUEncoder", "layers": 2, "dropout": 0.1},
    },
    "feature_dim": 12,
    "text_dim": 8,
    "text_format": "tokens",
}


class NewModel(Protocol):
    def __call__(self, **changes: Any) -> TwoBranchModel: ...


class Train(Protocol):
    def __call__(
        self,
        checkpoints: Path,
        loss: nn.Module | None = None,
        model: nn.Module | None = None,
        **changes: Any,
    ) -> tuple[nn.Module, list[dict[str, float]]]: ...


@pytest.fixture(scope="session")
def configuration(pairs: ImageCaptionPairs) -> dict[str, Any]:
    """Arguments of ``build_model`` for ``pairs``."""
    return CONFIGURATION | {"vocabulary_size": len(pairs.text.vocabulary)}


@pytest.fixture(scope="session")
def new_model(configuration: dict[str, Any]) -> NewModel:
    """Function ``new_model()``: a model that always has the same weights."""

    def build(**changes: Any) -> TwoBranchModel:
        torch.manual_seed(5)
        return build_model(**configuration | {"model": configuration["model"] | changes})

    return build


@pytest.fixture
def inputs(stores: tuple[Dataset, FeatureStore, TextStore]) -> TrainingInputs:
    """The images of ``stores``: 32 to train on, 8 to validate with."""
    dataset, features, text = stores
    images = dataset.images.assign(split=["train"] * 32 + ["val"] * 8)
    dataset = replace(dataset, images=images, phrases=pd.DataFrame({"image_id": []}))
    return TrainingInputs(dataset, features, text, load_vectorizer(dataset.image_root / "text"))


@pytest.fixture(scope="session")
def train(pairs: ImageCaptionPairs, new_model: NewModel) -> Train:
    """Function ``train(checkpoints)``: the model after three epochs of five steps, and its
    history."""

    def run(
        checkpoints: Path,
        loss: nn.Module | None = None,
        model: nn.Module | None = None,
        **changes: Any,
    ) -> tuple[nn.Module, list[dict[str, float]]]:
        model, fields = model or new_model(), TrainingPhase.__dataclass_fields__
        sampler = changes.pop(
            "sampler", CaptionBatches(batch_size=16).sampler(pairs.image_of_caption, seed=3)
        )
        own = {
            name: changes.pop(name)
            for name in list(changes)
            if name in ("augment", "seed", "on_epoch")
        }
        defaults = TrainingPhase(
            CaptionBatches(),
            loss or TripletLoss(),
            epochs=3,
            learning_rate=0.01,
            schedule=MultiStep([2], 0.5),
        )
        phase = replace(
            defaults, **{name: changes.pop(name) for name in list(changes) if name in fields}
        )
        history = fit(
            model,
            phase,
            PreparedBatches(pairs, sampler),
            lambda model: recall_metrics(model_ranks(model, pairs)),
            checkpoints=checkpoints,
            options=FitOptions(**{"checkpoint_every_seconds": 0.0, **changes}),
            **{"seed": 3, **own},
        )
        return model, history

    return run


@pytest.fixture(scope="session")
def semantic(
    stores: tuple[Dataset, FeatureStore, TextStore], tmp_path_factory: pytest.TempPathFactory
) -> SemanticPairs:
    """The images of ``stores`` with the tf-idf of their joined captions."""
    tables, features, _ = stores
    folder: Path = tmp_path_factory.mktemp("tfidf")
    vectorizer, captions = TFIDF(), tables.captions["text"].tolist()
    vectorizer.fit(captions, seed=0)
    write_text(folder, vectorizer, tables.captions["caption_id"].tolist(), captions)
    return SemanticPairs(ImageCaptionPairs(tables, features, TextStore(folder)))


@pytest.fixture(scope="session")
def phrase_boxes(tmp_path_factory: pytest.TempPathFactory) -> PhraseBoxPairs:
    """24 images of two objects in cells 0 and 1; the background in cell 2 resembles the first
    object even more.

    Boxes 6 and 7 of an image are the ground-truth boxes of its objects. One phrase has no stored
    box.
    """
    folder: Path = tmp_path_factory.mktemp("boxes")
    random = np.random.default_rng(0)
    objects, background = random.normal(size=(4, 12)), random.normal(size=12)
    phrases = ("a red star", "a blue ring", "a green heart", "a pink square")
    boxes = np.array(
        [[x / 3, y / 2, (x + 1) / 3, (y + 1) / 2] for y in range(2) for x in range(3)], np.float32
    )
    rows = []
    metadata = {"truth_regions": 2}
    with FeatureWriter(folder, regions=8, dim=12, metadata=metadata, images_per_file=8) as writer:
        for number in range(24):
            shown = (number % 4, (number + 1 + number // 4 % 3) % 4)
            cells, true = 0.3 * random.normal(size=(8, 12)), []
            for cell, kind in enumerate(shown):
                cells[[cell, 6 + cell]] += objects[kind]
                # Overlaps its cell by most, and the next cell by little.
                true.append(boxes[cell] * 120 + [2, -2, 2, 2])
                rows.append((f"image {number}", phrases[kind], true[-1].tolist()))
            cells[2] += 3 * objects[shown[0]] + 3 * background
            given = np.concatenate([boxes, np.array(true) / 120]).clip(0, 1)
            writer.add(f"image {number}", cells.astype(np.float32), given, truth=2)
    rows.append(("image 0", "a thing without a box", [0.0, 0.0, 3.0, 3.0]))
    images = pd.DataFrame(
        {"image_id": [f"image {n}" for n in range(24)], "width": 120, "height": 120}
    )
    table = pd.DataFrame(rows, columns=["image_id", "phrase", "boxes"])
    table["boxes"] = [np.array([box], np.float32) for box in table["boxes"]]
    vectorizer = TFIDF(min_count=1)
    vectorizer.fit(phrases, seed=0)
    tables = Dataset(images, pd.DataFrame(), table, folder)
    return PhraseBoxPairs(tables, FeatureStore(folder), FittedVectorizer(vectorizer))
