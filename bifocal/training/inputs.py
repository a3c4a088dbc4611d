"""Data of a training, and a new model for it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bifocal.datasets import Dataset, read_dataset
from bifocal.features import FeatureStore, open_features
from bifocal.models import build_model
from bifocal.models.base import Model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.models.inputs import input_identity
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import FittedVectorizer, load_vectorizer
from bifocal.training.phrase_pairs import PhraseBoxPairs
from bifocal.training.precision import Precision


@dataclass
class TrainingInputs:
    """Dataset, features and text of a training; ``vectorizer`` vectorizes phrases, which are not in
    ``text``."""

    dataset: Dataset
    features: FeatureStore
    text: TextStore
    vectorizer: FittedVectorizer
    precision: Precision = "float32"  # of the training's steps
    _captions: dict[tuple[str, int | None], ImageCaptionPairs] = field(
        default_factory=dict, init=False, repr=False
    )
    _phrases: dict[str, PhraseBoxPairs] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def open(
        cls, dataset: Path, features: Path, text: Path, precision: Precision = "float32"
    ) -> "TrainingInputs":
        """Open the folders of a dataset, its features and its text."""
        tables = read_dataset(dataset)
        return cls(
            tables,
            open_features(features, tables),
            TextStore(text),
            load_vectorizer(text),
            precision,
        )

    def captions(self, split: str, images: int | None = None) -> ImageCaptionPairs:
        """Return the first ``images`` images of a split with their captions; None for all."""
        if (split, images) not in self._captions:
            dataset = self.dataset.split(split).first(images)
            self._captions[split, images] = ImageCaptionPairs(dataset, self.features, self.text)
        return self._captions[split, images]

    def phrases(self, split: str) -> PhraseBoxPairs:
        """Return the phrases of a split with their boxes."""
        if split not in self._phrases:
            self._phrases[split] = PhraseBoxPairs(
                self.dataset.split(split), self.features, self.vectorizer
            )
        return self._phrases[split]


def new_model(model: Any, inputs: TrainingInputs, *, seed: int = 0) -> Model:
    """Return a model, as for ``build_model``, with random weights and the stored weights of
    features and text."""
    torch.manual_seed(seed)
    text = inputs.text
    tokens = text.format.name == "tokens"
    built = build_model(
        model,
        feature_dim=inputs.features.dim,
        text_dim=text.dim,
        text_format=text.format.name,
        vocabulary_size=len(text.vocabulary) if tokens else None,
        inputs=input_identity(inputs.features, text),
    )
    if built.word_embedding is not None:
        built.word_embedding.weight.data.copy_(text.word_vectors)
    built.image_encoder.load_pretrained(inputs.features.directory)
    return built
