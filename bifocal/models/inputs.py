"""Identity of a model's inputs: a model works only with the features and the vectorizer that it was
trained with."""

from collections.abc import Mapping

from bifocal.features import FeatureStore
from bifocal.models.base import Model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import FittedVectorizer, vectorizer_digest

FEATURE_KEYS = ("extractor", "backbone", "layer", "weights", "preprocessing")
"""Metadata of a feature store that two datasets share if their features are computed in the same
way."""


def input_identity(features: FeatureStore, text: TextStore) -> dict[str, object]:
    """Return how features are computed and the fitted vectorizer, which a model must remember to be
    evaluated."""
    return {**feature_identity(features), "vectorizer": vectorizer_digest(text.directory)}


def feature_identity(features: FeatureStore) -> dict[str, object]:
    """Return how features are computed."""
    return {key: features.metadata[key] for key in FEATURE_KEYS if key in features.metadata}


def check_inputs(model: Model, features: FeatureStore, text: TextStore) -> None:
    """Compare the inputs with the inputs of the training; a model built by hand remembers none."""
    expected: Mapping[str, object] = model.config.get("inputs") or {}
    check_features(model, features)
    if "vectorizer" in expected and expected["vectorizer"] != vectorizer_digest(text.directory):
        raise ValueError(
            f"the text {text.directory} has another vectorizer than the model was trained "
            "with, so its values mean other words: vectorize the captions with FromText, "
            "whose path is the folder of the model's text"
        )


def check_features(model: Model, features: FeatureStore) -> None:
    """Compare the features with the features of the training; a model built by hand remembers
    none."""
    expected: Mapping[str, object] = model.config.get("inputs") or {}
    actual = feature_identity(features)
    for name, value in expected.items():
        if name != "vectorizer" and actual.get(name) != value:
            raise ValueError(
                f"the features have {name} {actual.get(name)!r}, but the model was trained on "
                f"features with {name} {value!r}: extract the features of these images in the "
                "same way, with the same weights"
            )


def zero_shot_skip_reason(features: FeatureStore, vectorizer: FittedVectorizer) -> str | None:
    """Return why features and text have no zero-shot score; None if both come from one contrastive
    model."""
    weights = getattr(vectorizer.vectorizer, "weights", None)
    if weights is None:
        return (
            f"{type(vectorizer.vectorizer).__name__} is not the text tower of a contrastive model"
        )
    if features.metadata.get("layer") != "projection":
        return (
            "the features are not in the joint space of a contrastive model: extract "
            "projections with OpenClip"
        )
    if features.metadata.get("weights") != weights:
        return "the image tower and the text tower have different weights"
    return None
