"""A contrastive model as it is."""

from collections.abc import Collection
from typing import ClassVar

from bifocal.features import FeatureStore
from bifocal.layers import ResidualMap
from bifocal.models.base import Model
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs


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


class ZeroShot(Initialization):
    """The contrastive model of the features and the text, below residual heads that are the identity.

    With ``phases: []`` it is the result: the contrastive model is exported and registered unchanged. With phases, it is
    epoch 0 of the training, which is kept unless a phase improves on it.

    Example:
        >>> list(ZeroShot.conflicts({}))
        []
    """

    encoders: ClassVar[Collection[str]] = ("ResidualHead",)

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        reason = zero_shot_skip_reason(inputs.features, inputs.vectorizer)
        if reason is not None:
            raise ValueError(f"ZeroShot: {reason}")
        for encoder in (model.image_encoder, model.text_encoder):
            head = getattr(encoder, "head", None)
            if not isinstance(head, ResidualMap):
                raise ValueError(f"ZeroShot: {type(encoder).__name__} changes the vectors: use ResidualHead")
            if encoder.input_dim != encoder.dim:
                raise ValueError(f"ZeroShot: dim of the model is {encoder.dim}: set it to {encoder.input_dim}")
            head.reset()
        return {}
