"""Several trained models as one."""

from collections.abc import Sequence

import torch

from bifocal.models.base import Model
from bifocal.models.serialization import build_model
from bifocal.models.two_branch import TwoBranchModel


def concatenate_models(models: Sequence[Model]) -> Model:
    """Return one model with the vectors of all ``models``, one after the other, divided by sqrt(n).

    The cosine of the result is the mean of the cosines of the models: an ensemble with one vector per image and
    caption, which is saved, exported, indexed and served as one model. Lakshminarayanan et al., "Simple and scalable
    predictive uncertainty estimation using deep ensembles", NeurIPS 2017, average networks of different seeds.

    Args:
        models: of ``build_model`` with the same arguments, such as trainings with several seeds; one is returned as it
            is.

    Raises:
        ValueError: the models have different arguments, or several vectors per image.
    """
    first = models[0]
    if len(models) == 1:
        return first
    if any(model.config != first.config for model in models):
        raise ValueError("the models have different arguments: concatenate trainings of one configuration")
    if not isinstance(first, TwoBranchModel):
        raise ValueError(f"a {type(first).__name__} has no single vector to concatenate: use a TwoBranchModel")
    joined = build_model(**first.config | {"members": len(models)})
    for part in Model.parts:
        for member, model in zip(getattr(joined, part).members, models, strict=True):
            member.load_state_dict(getattr(model, part).state_dict())
    if joined.word_embedding is not None:
        weights = [model.word_embedding.weight for model in models if model.word_embedding is not None]
        joined.word_embedding.weight.data.copy_(torch.cat(weights, dim=1))
    return joined.to(first.device).eval()
