"""The weights of an embedding that is trained already."""

from collections.abc import Mapping
from pathlib import Path

from bifocal.models import load_model
from bifocal.models.base import Model
from bifocal.models.inputs import check_inputs
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs


class FromEmbedding(Initialization):
    """The weights of another embedding, on the same kind of features and with the same fitted vectorizer.

    With phases, the embedding is fine-tuned on this dataset. Without phases, it is transferred as it is. The text of
    this dataset must come from the embedding's vectorizer: see ``FromText``.

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
                f"the embedding {self.path} has {name} {theirs.get(name, 'missing')}, and the model to train has "
                f"{ours.get(name, 'none')}: build the model of that embedding, which its config.json names"
            )
        model.load_state_dict(source.state_dict())
        return {}


def _shapes(model: Model) -> Mapping[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
