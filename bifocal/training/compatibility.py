"""Contradictions between references to a model, an initialization, batches and a loss, found before
they are built."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from bifocal import registry
from bifocal.models.base import Model
from bifocal.training.batches.base import Batches
from bifocal.training.initialization.base import Initialization

BATCHES, LOSSES = "bifocal.training.batches", "bifocal.losses"


def phase_conflicts(model: Any, batches: Any, loss: Any) -> Iterator[str]:
    """Explain batches and a loss that cannot be trained together, or not with the model."""
    model_class: type[Model] = registry.get("bifocal.models", registry.split(model)[0])
    batches_class: type[Batches] = registry.get(BATCHES, registry.split(batches)[0])
    losses = list(_losses(loss))
    if batches_class.loss not in (None, losses[0][0]):
        yield (
            f"{batches_class.__name__} needs {batches_class.loss.__name__}, with its margin: "
            "set it as loss"
        )
    for part, arguments in losses:
        partners = [
            name
            for name, other in registry.registered(BATCHES).items()
            if getattr(other, "loss", None) is part
        ]
        if partners and batches_class.__name__ not in partners:
            yield (
                f"{part.__name__} needs {' or '.join(partners)}, not {batches_class.__name__}: "
                "set batches or loss"
            )
        if hasattr(part, "needed_scores"):
            needed, fix = part.needed_scores(arguments)
            missing = [name for name in needed if name not in model_class.scores]
            if missing:
                scores = " and ".join(f"scores.{name}" for name in missing)
                yield f"{part.__name__} needs {scores}, which {model_class.__name__} lacks: {fix}"
    if batches_class.single_vector and not model_class.single_vector:
        name = model_class.__name__
        yield (
            f"{batches_class.__name__} needs one vector per image, but a {name} has several: "
            "use TwoBranchModel"
        )


def model_conflicts(model: Any, initializations: Mapping[str, Any], members: int) -> Iterator[str]:
    """Explain initializations that need other encoders, and members whose vectors cannot be
    concatenated."""
    name, arguments = registry.split(model)
    model_class: type[Model] = registry.get("bifocal.models", name)
    if members > 1 and not model_class.single_vector:
        yield f"members: a {name} has no single vector to concatenate: leave it out"
    encoders = [registry.split(arguments[encoder])[0] for encoder in Model.parts]
    for key, initialization in initializations.items():
        initial = registry.split(initialization)[0]
        part: type[Initialization] = registry.get("bifocal.training.initialization", initial)
        if part.encoders and not set(encoders) <= {*part.encoders}:
            names = " and ".join(encoders)
            yield (
                f"{key} is {initial}, and the encoders are {names}: set both to "
                f"{' or '.join(part.encoders)}"
            )


def _losses(ref: Any) -> Iterator[tuple[type[nn.Module], dict[str, Any]]]:
    """Yield the class and all arguments of a loss and of the losses among its arguments."""
    part = registry.get(LOSSES, registry.split(ref)[0])
    arguments = registry.all_arguments(LOSSES, ref)
    yield part, arguments
    for argument in getattr(part, "parts", ()):
        for inner in arguments[argument]:
            yield from _losses(inner)
