"""Weight of the residual heads, chosen on the validation images."""

from torch import nn

from bifocal.layers import ResidualMap
from bifocal.training.inputs import TrainingInputs
from bifocal.training.validators import Recall

BLENDS = tuple(step / 10 for step in range(11))
"""Candidates. Weight 0 gives the model without its heads."""


def choose_blend(model: nn.Module, inputs: TrainingInputs) -> dict[str, float]:
    """Set the weight of all residual heads to the candidate of the highest recall sum on "val"; return both."""
    heads = [module for module in model.modules() if isinstance(module, ResidualMap)]
    if not heads:
        return {}
    validate, sums = Recall().prepare(inputs), dict[float, float]()
    for blend in BLENDS:
        set_blend(model, blend)
        sums[blend] = validate(model)["recall_sum"]
    best = max(sums, key=lambda blend: sums[blend])
    set_blend(model, best)
    return {"blend": best, "validation_blended": sums[best], "validation_zero_shot": sums[0.0]}


def set_blend(model: nn.Module, blend: float) -> None:
    for module in model.modules():
        if isinstance(module, ResidualMap):
            module.blend.fill_(blend)
