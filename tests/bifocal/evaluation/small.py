"""Small evaluation data: scenes, grid features with boxes, word vectors and an untrained SMILE."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from bifocal.datasets import read_dataset
from bifocal.evaluation.base import Subject
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.boxes import cell_boxes
from bifocal.models import build_model, load_model, save_model
from bifocal.text import TextStore
from bifocal.text.vectorizers import Word2Vec
from bifocal.text.vectorizers.base import load_vectorizer, write_text
from tests.bifocal.datasets.small import write_scenes

SIDE, DIM, WORDS = 3, 12, 8
INPUTS = ("dataset", "features", "text", "embedding")


def write_inputs(folders: Mapping[str, Path]) -> None:
    """Write the data into the existing folders named in ``INPUTS``."""
    write_scenes(folders["dataset"], 2, 1, 9)
    dataset = read_dataset(folders["dataset"])
    random = np.random.default_rng(0)
    with FeatureWriter(folders["features"], regions=SIDE**2, dim=DIM, metadata={}) as writer:
        for image_id in dataset.images["image_id"]:
            writer.add(
                image_id,
                random.normal(size=(SIDE**2, DIM)).astype(np.float32),
                cell_boxes(SIDE, SIDE).numpy(),
            )
    vectorizer = Word2Vec(dim=WORDS, min_count=1, epochs=1)
    captions = list(dataset.captions["text"])
    vectorizer.fit(captions, seed=0)
    write_text(folders["text"], vectorizer, dataset.captions["caption_id"].tolist(), captions)
    text = TextStore(folders["text"])
    torch.manual_seed(0)
    model = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 6,
            "image_encoder": "SMILEEncoder",
            "text_encoder": "GRUEncoder",
        },
        feature_dim=DIM,
        text_dim=WORDS,
        text_format=text.format.name,
        vocabulary_size=len(text.word_vectors),
    )
    save_model(folders["embedding"], model)


def read_subject(folder: Path, split: str = "test") -> Subject:
    """Return the subject of the data below ``folder``."""
    return Subject(
        load_model(folder / "embedding"),
        read_dataset(folder / "dataset"),
        split,
        FeatureStore(folder / "features"),
        TextStore(folder / "text"),
        load_vectorizer(folder / "text"),
        seed=1,
        resamples=50,
    )
