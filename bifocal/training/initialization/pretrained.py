"""Initializations by networks that are trained already: another embedding, or the contrastive model
as it is."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

from bifocal.layers import ResidualMap
from bifocal.models import load_model
from bifocal.models.base import Model
from bifocal.models.inputs import check_inputs, zero_shot_skip_reason
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs


class FromEmbedding(Initialization):
    """The weights of another embedding, on the same kind of features and with the same fitted
    vectorizer.

    With phases, the embedding is fine-tuned on this dataset. Without phases, it is transferred as
    it is. The text of this dataset must come from the embedding's vectorizer: see ``FromText``.

    Args:
        path: folder of the embedding, the artifact ``embedding`` of another run.

    Example:
        >>> FromEmbedding("../coco/artifacts/embedding").path.name
        'embedding'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        source = load_model(self.path)
        check_inputs(source, inputs.features, inputs.text)
        theirs, ours = _shapes(source), _shapes(model)
        if theirs != ours:
            name = next(name for name in (*ours, *theirs) if ours.get(name) != theirs.get(name))
            raise ValueError(
                f"the embedding {self.path} has {name} {theirs.get(name, 'missing')}, and the "
                f"model to train has {ours.get(name, 'none')}: build the model of that "
                "embedding, which its config.json names"
            )
        model.load_state_dict(source.state_dict())
        return {}


def _shapes(model: Model) -> Mapping[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


class ZeroShot(Initialization):
    """The contrastive model of the features and the text, below residual heads that are the
    identity.

    With ``phases: []`` it is the result: the contrastive model is exported and registered
    unchanged. With phases, it is epoch 0 of the training, which is kept unless a phase improves on
    it.

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
                raise ValueError(
                    f"ZeroShot: {type(encoder).__name__} changes the vectors: use ResidualHead"
                )
            if encoder.input_dim != encoder.dim:
                raise ValueError(
                    f"ZeroShot: dim of the model is {encoder.dim}: set it to {encoder.input_dim}"
                )
            head.reset()
        return {}
