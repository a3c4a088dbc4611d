"""Canonical correlation analysis of images and captions."""

from collections.abc import Collection
from typing import ClassVar, cast

import torch

from bifocal.models.base import Model
from bifocal.training.cca import Pool, caption_blocks, fit_cca
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs
from bifocal.training.precision import embedding_cast


class CCA(Initialization):
    """Normalized canonical correlation analysis of the training images and captions, for affine maps at both ends.

    Gong, Ke, Isard, Lazebnik, "A multi-view embedding space for modeling internet images, tags, and their semantics",
    IJCV 2014, eq. (3) and section 3.4; Klein et al., CVPR 2015, over Fisher vectors: a baseline of Wang, Li, Lazebnik,
    CVPR 2016, table 1. The fit is in closed form, in blocks; with ``phases: []`` it is the result.

    Args:
        regularization: value added to the variances, as a fraction of their mean; the papers state none.
        power: p, exponent of the correlations that scale the projections.

    Example:
        >>> CCA(power=4.0).power
        4.0
    """

    encoders: ClassVar[Collection[str]] = ("LinearEncoder", "LastLayersEncoder")

    def __init__(self, regularization: float = 1e-4, power: float = 4.0) -> None:
        if regularization < 0 or power < 0:
            raise ValueError(f"regularization is {regularization} and power {power}: expected 0 or more")
        self.regularization, self.power = regularization, power

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        model.eval()
        with torch.inference_mode(), embedding_cast(model, inputs.precision):
            blocks = caption_blocks(inputs.captions("train"), cast(Pool, model.image_encoder.pooled))
            return fit_cca(model, blocks, regularization=self.regularization, power=self.power)
