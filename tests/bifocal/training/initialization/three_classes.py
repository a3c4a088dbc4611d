"""Images with the probabilities of three classes, and a sentence encoder with random weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.text import TextStore
from bifocal.text.vectorizers import TFIDF, Concatenated, SentenceVectors
from bifocal.text.vectorizers.base import Vectorizer, load_vectorizer, write_text
from bifocal.training import TrainingInputs, new_model
from tests.bifocal.pointing_heads import DEFINITIONS, NAMES
from tests.bifocal.tiny_transformer import write_tiny_transformer

CAPTIONS = ["a dog runs", "two cats", "a red car", "a dog and a cat"]
METADATA = {"extractor": "PooledLayers", "classes": True, "backbone": "small"}
OTHER, WIDTH = 8, 8
"""Channels before those of the classes; width of the sentence encoder."""


@dataclass
class World:
    inputs: TrainingInputs
    reference: dict[str, Any]
    model: Any
    features: np.ndarray[Any, Any]
    sentences: SentenceVectors


def build(
    folder: Path,
    metadata: dict[str, Any] = METADATA,
    dim: int = 9,
    standardize: bool = True,
    sentences: bool = True,
) -> World:
    """Return the inputs of three training images and another one, and an untrained model."""
    features = np.random.default_rng(0).random((4, OTHER + len(NAMES))).astype(np.float16)
    (folder / "features").mkdir()
    with FeatureWriter(
        folder / "features", regions=1, dim=features.shape[1], metadata=metadata
    ) as writer:
        for number, row in enumerate(features):
            writer.add(str(number), row[None].astype(np.float32))
    texts = [*CAPTIONS, *DEFINITIONS, *(name for names in NAMES for name in names)]
    sentence_encoder = SentenceVectors(
        path=write_tiny_transformer(texts, dim=WIDTH, folder=folder / "encoder")
    )
    vectorizer: Vectorizer = Concatenated([TFIDF(), sentence_encoder]) if sentences else TFIDF()
    vectorizer.fit(CAPTIONS, seed=0)
    (folder / "text").mkdir()
    write_text(folder / "text", vectorizer, range(4), CAPTIONS)
    ids = [str(number) for number in range(4)]
    images = pd.DataFrame({"image_id": ids, "split": ["train", "train", "train", "val"]})
    captions = pd.DataFrame({"caption_id": range(4), "image_id": ids, "text": CAPTIONS})
    phrases = pd.DataFrame({"image_id": []})
    inputs = TrainingInputs(
        Dataset(images, captions, phrases, folder, labels=phrases),
        FeatureStore(folder / "features"),
        TextStore(folder / "text"),
        load_vectorizer(folder / "text"),
    )
    encoder = {"name": "LinearEncoder", "standardize": standardize}
    reference = {
        "name": "TwoBranchModel",
        "dim": dim,
        "image_encoder": encoder,
        "text_encoder": "LinearEncoder",
    }
    return World(
        inputs, reference, new_model(reference, inputs), features.astype(float), sentence_encoder
    )
