"""Zero-shot retrieval: the cosine of both towers of one contrastive model."""

from bifocal.features import FeatureStore
from bifocal.text.vectorizers.base import FittedVectorizer


def zero_shot_skip_reason(features: FeatureStore, vectorizer: FittedVectorizer) -> str | None:
    """Return why features and text have no zero-shot score; None if both come from one contrastive model."""
    weights = getattr(vectorizer.vectorizer, "weights", None)
    if weights is None:
        return f"{type(vectorizer.vectorizer).__name__} is not the text tower of a contrastive model"
    if features.metadata.get("layer") != "projection":
        return "the features are not in the joint space of a contrastive model: extract projections with OpenClip"
    if features.metadata.get("weights") != weights:
        return "the image tower and the text tower have different weights"
    return None
