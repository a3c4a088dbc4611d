"""Promises of every registered class of batches: which rows an epoch draws, and which validator it
names."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from bifocal import registry
from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.models import build_model
from bifocal.text import TextStore
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import load_vectorizer, write_text
from bifocal.training.batches.base import Batches, PreparedBatches
from bifocal.training.inputs import TrainingInputs

BATCHES = registry.registered("bifocal.training.batches")
ARGUMENTS: dict[str, dict[str, int]] = {
    "CaptionBatches": {"batch_size": 8},
    "DistinctImageBatches": {"batch_size": 8},
    "MinedTriplets": {
        "batch_size": 4,
        "neighbors": 3,
        "positives_per_query": 2,
        "steps_per_epoch": 3,
    },
    "OrderedTriplets": {"batch_size": 4, "steps_per_epoch": 3},
    "PhraseBoxes": {"batch_size": 5},
}
"""Arguments for a collection of 24 images."""
TRIPLETS = {"name": "SemanticTripletLoss", "margin": 1.0}
LOSSES = {"MinedTriplets": TRIPLETS, "OrderedTriplets": TRIPLETS}
"""References of the losses that the batches need; HardestTripletLoss for the others."""
EXAMPLES = {"MinedTriplets": 3, "OrderedTriplets": 3}
"""Rows per example; 1 for the others."""
ONCE = ["CaptionBatches", "DistinctImageBatches", "PhraseBoxes"]
"""Batches that draw a row at most once per epoch."""
OBJECTS = ("red star", "blue ring", "green heart", "pink square")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> TrainingInputs:
    """24 images to train on and 8 to validate, each of two objects, with three captions and two
    phrases."""
    folder: Path = tmp_path_factory.mktemp("batches")
    for name in ("features", "text"):
        (folder / name).mkdir()
    random = np.random.default_rng(0)
    vectors = random.normal(size=(4, 12))
    boxes = np.array(
        [[x / 2, y / 2, (x + 1) / 2, (y + 1) / 2] for y in range(2) for x in range(2)], np.float32
    )
    images, captions, phrases = [], [], []
    metadata = {"truth_regions": 2}
    with FeatureWriter(
        folder / "features", regions=6, dim=12, metadata=metadata, images_per_file=64
    ) as writer:
        for number in range(32):
            image_id, shown = f"image {number}", (number % 4, (number + 1 + number // 4 % 3) % 4)
            images.append((image_id, "train" if number < 24 else "val"))
            cells = 0.3 * random.normal(size=(4, 12))
            for cell, kind in enumerate(shown):
                cells[cell] += vectors[kind]
                phrases.append((image_id, OBJECTS[kind], np.array([boxes[cell] * 100], np.float32)))
            given = [0, 1, 2, 3, 0, 1]  # the cells of the objects are ground-truth boxes too
            writer.add(image_id, cells[given].astype(np.float32), boxes[given], truth=2)
            first, second = (OBJECTS[kind] for kind in shown)
            captions += [
                (image_id, text)
                for text in (f"a {first}", f"a {second}", f"a {first} and a {second}")
            ]
    captions = [(index, *caption) for index, caption in enumerate(captions)]
    vectorizer, texts = TFIDF(min_count=1), [text for _, _, text in captions]
    vectorizer.fit(texts, seed=0)
    write_text(folder / "text", vectorizer, range(len(texts)), texts)
    dataset = Dataset(
        images=pd.DataFrame(images, columns=["image_id", "split"]).assign(width=100, height=100),
        captions=pd.DataFrame(captions, columns=["caption_id", "image_id", "text"]),
        phrases=pd.DataFrame(phrases, columns=["image_id", "phrase", "boxes"]),
        image_root=folder,
    )
    stores = FeatureStore(folder / "features"), TextStore(folder / "text")
    return TrainingInputs(dataset, *stores, load_vectorizer(folder / "text"))


def new_model(inputs: TrainingInputs) -> nn.Module:
    torch.manual_seed(0)
    ref = {
        "name": "TwoBranchModel",
        "dim": 8,
        "image_encoder": "LinearEncoder",
        "text_encoder": "BagOfWordsEncoder",
    }
    text = inputs.text
    return build_model(ref, feature_dim=12, text_dim=text.dim, text_format=text.format.name)


def new_batches(name: str) -> Batches:
    batches: Batches = registry.build("bifocal.training.batches", {"name": name, **ARGUMENTS[name]})
    return batches


def new_loss(name: str) -> nn.Module:
    loss: nn.Module = registry.build("bifocal.losses", LOSSES.get(name, "HardestTripletLoss"))
    return loss


def prepare(
    name: str, inputs: TrainingInputs, seed: int = 1, model: nn.Module | None = None
) -> PreparedBatches:
    model = model or new_model(inputs)
    return new_batches(name).prepare(inputs, model=model, loss=new_loss(name), seed=seed)


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, b) for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("name", sorted(BATCHES))
class TestEveryClass:
    def test_builds_without_arguments(self, name: str) -> None:
        batches = registry.build("bifocal.training.batches", name)
        assert isinstance(batches, Batches)
        assert batches.batch_size >= 1

    def test_rejects_a_batch_size_below_one(self, name: str) -> None:
        with pytest.raises(ValueError, match="batch_size is 0: expected 1 or more"):
            registry.build("bifocal.training.batches", {"name": name, "batch_size": 0})
        assert "batch_size is 0" in " ".join(BATCHES[name].conflicts({"batch_size": 0}))

    def test_repeats_an_epoch_by_seed(self, name: str, inputs: TrainingInputs) -> None:
        assert equal(list(prepare(name, inputs).sampler(2)), list(prepare(name, inputs).sampler(2)))

    def test_differs_from_epoch_to_epoch_and_by_seed(
        self, name: str, inputs: TrainingInputs
    ) -> None:
        first = list(prepare(name, inputs).sampler(0))
        assert not equal(first, list(prepare(name, inputs).sampler(1)))
        assert not equal(first, list(prepare(name, inputs, seed=2).sampler(0)))

    def test_fills_batches_up_to_the_batch_size(self, name: str, inputs: TrainingInputs) -> None:
        epoch = prepare(name, inputs).sampler(0)
        size = ARGUMENTS[name]["batch_size"] * EXAMPLES.get(name, 1)
        assert len(epoch) > 1
        # PhraseBoxes adds neighbors to the drawn pairs: one per phrase and one per box at most.
        assert all(0 < len(rows) <= (3 if name == "PhraseBoxes" else 1) * size for rows in epoch)

    def test_gives_batches_that_the_model_trains_on(
        self, name: str, inputs: TrainingInputs
    ) -> None:
        model = new_model(inputs)
        prepared, loss = prepare(name, inputs, model=model), new_loss(name)
        batch = prepared.source.batch(prepared.sampler(0)[0], 0, 1)
        value = loss(model(batch), batch.matches)
        value.backward()
        assert value.isfinite()
        assert len(batch.image_ids) == len(batch.matches)
        assert all(
            parameter.grad.isfinite().all()
            for parameter in model.parameters()
            if parameter.grad is not None
        )

    def test_validates_with_the_metric_that_it_names(
        self, name: str, inputs: TrainingInputs
    ) -> None:
        model, batches = new_model(inputs), new_batches(name)
        validation = batches.validator()
        metrics = validation.prepare(inputs)(model)
        assert 0 <= metrics[validation.monitor] <= 600
        assert not model.training


@pytest.mark.parametrize("name", ONCE)
def test_draws_every_row_at_most_once_per_epoch(name: str, inputs: TrainingInputs) -> None:
    size = ARGUMENTS[name]["batch_size"]
    rows = torch.cat([batch[:size] for batch in prepare(name, inputs).sampler(0)])
    assert len(rows.unique(dim=0)) == len(rows)


@pytest.mark.parametrize("name", ["MinedTriplets", "OrderedTriplets", "PhraseBoxes"])
def test_rejects_a_model_without_single_vectors(name: str, inputs: TrainingInputs) -> None:
    with pytest.raises(
        TypeError, match="Identity has no single vector for an image: use a TwoBranchModel"
    ):
        prepare(name, inputs, model=nn.Identity())


@pytest.mark.parametrize("name", ["MinedTriplets", "OrderedTriplets"])
def test_triplets_reject_another_loss(name: str, inputs: TrainingInputs) -> None:
    with pytest.raises(TypeError, match=f"{name} needs SemanticTripletLoss, not InfoNCELoss"):
        new_batches(name).prepare(
            inputs,
            model=new_model(inputs),
            loss=registry.build("bifocal.losses", "InfoNCELoss"),
            seed=1,
        )
