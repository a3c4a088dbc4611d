"""The collection of a run: its order is the evaluation's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.datasets import read_dataset
from bifocal.evaluation import Retrieval
from bifocal.evaluation.base import Subject
from bifocal.evaluation.retrieval.ranked_split import rank_split
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.hubness.bank import HubnessBank
from bifocal.models import TwoBranchModel, build_model, save_model
from bifocal.models.batch import embed
from bifocal.search import Search
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.index.build import index_of_collection
from bifocal.text import TextStore
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import load_vectorizer, write_text
from bifocal.training.inputs import TrainingInputs
from bifocal.training.members import training_bank
from tests.bifocal.datasets.small import write_scenes


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """A run folder with an untrained model, its bank, and the subject of its evaluation."""
    folders = [
        tmp_path / "artifacts" / name for name in ("dataset", "features", "text", "embedding")
    ]
    for folder in folders:
        folder.mkdir(parents=True)
    dataset, features, text, embedding = folders
    write_scenes(dataset, 30, 30, 0)
    tables = read_dataset(dataset)
    random = np.random.default_rng(0)
    with FeatureWriter(features, regions=1, dim=16, metadata={}, images_per_file=64) as writer:
        for image_id in tables.images["image_id"]:
            writer.add(image_id, random.normal(size=(1, 16)).astype(np.float32))
    vectorizer, captions = TFIDF(min_count=1), tables.captions["text"].tolist()
    vectorizer.fit(captions, seed=0)
    write_text(text, vectorizer, tables.captions["caption_id"].tolist(), captions)
    inputs = TrainingInputs(tables, FeatureStore(features), TextStore(text), load_vectorizer(text))
    torch.manual_seed(0)
    encoders = {"image_encoder": "LinearEncoder", "text_encoder": "LinearEncoder"}
    sizes = {"feature_dim": 16, "text_dim": inputs.text.dim, "text_format": "sparse"}
    model = build_model({"name": "TwoBranchModel", "dim": 8, **encoders}, **sizes)
    save_model(embedding, model)
    bank = training_bank(model, inputs, {"name": "CSLS", "k": 3}, seed=0)
    assert bank is not None
    bank.write(embedding)
    stores = inputs.features, inputs.text, inputs.vectorizer
    return Subject(model, tables, "val", *stores, bank=HubnessBank.read(embedding))


def test_a_dataset_without_training_captions_has_no_bank(subject: Subject) -> None:
    inputs = TrainingInputs(
        subject.dataset.split("val"), subject.features, subject.text, subject.vectorizer
    )
    assert training_bank(subject.model, inputs, "CSLS", seed=0) is None


def test_corrected_search_ranks_as_the_evaluation(subject: Subject, tmp_path: Path) -> None:
    ids = subject.dataset.images["image_id"].tolist()
    assert isinstance(subject.model, TwoBranchModel)
    regions = subject.features.gather(subject.features.rows(ids))
    with torch.inference_mode():
        vectors = subject.model.embed_images(regions).numpy()
    description = Description(
        ModelIdentity("bifocal", None, "ab"), "images", vectors.shape[1], None
    )
    writer = CollectionWriter(tmp_path / "collection", description, items_per_shard=16)
    for image_id, vector in zip(ids, vectors, strict=True):
        writer.add(Item(image_id, None, "", 0, 0), vector)
    writer.finish()
    index, pairs = (
        index_of_collection(Collection.open(tmp_path / "collection"), subject.bank),
        subject.pairs,
    )
    ranked = rank_split(subject, "full")
    assert ranked.corrected is not None
    pool, ranks = set(pairs.image_ids), {True: list[int](), False: list[int]()}
    for caption, image in zip(
        embed(subject.model, pairs)[1].numpy(), pairs.image_of_caption.tolist(), strict=True
    ):
        for corrected, places in ranks.items():
            (hits,) = Search(index).batch(caption[None], len(index), sentences=corrected)
            places.append([hit.id for hit in hits if hit.id in pool].index(pairs.image_ids[image]))
    for corrected, folds in ((True, ranked.corrected), (False, ranked.raw)):
        differences = np.subtract(ranks[corrected], folds[0][1].better.numpy())
        # The collection stores vectors as float16: a few images with nearly equal scores change
        # places.
        assert np.mean(differences == 0) > 0.5
        assert np.abs(differences).max() <= 1
    assert ranks[True] != ranks[False]
    rows = {
        row.name: row.value for row in Retrieval()(replace(subject, resamples=10)).metric_rows()
    }
    served = 100 * np.mean(np.array(ranks[True]) < 10)
    assert rows["corrected.image_retrieval.R@10"] == pytest.approx(served, abs=1.5)
