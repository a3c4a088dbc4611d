"""Canonical correlation analysis of boxes and phrases."""

from collections.abc import Collection, Iterator
from typing import ClassVar

from torch import Tensor

from bifocal.models.base import Model
from bifocal.models.embedding import BATCH
from bifocal.training.cca import PairedBlock, fit_cca
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phrase_pairs import PhraseBoxPairs


class PhraseCCA(Initialization):
    """Normalized canonical correlation analysis of ground-truth boxes and their phrases, for two linear encoders.

    Plummer et al., "Flickr30k Entities", ICCV 2015: a baseline of Wang, Li, Lazebnik, CVPR 2016, table 3. See ``CCA``.
    The features hold ground-truth boxes (``truth_regions`` of ``Proposals`` or of ``ImageArrays``).

    Args:
        boxes_per_phrase: boxes of a phrase in the training set, at most, as for ``PhraseBoxes``.
        regularization: value added to the variances, as a fraction of their mean; the papers state none.
        power: p, exponent of the correlations that scale the projections.

    Example:
        >>> PhraseCCA().boxes_per_phrase
        10
    """

    encoders: ClassVar[Collection[str]] = ("LinearEncoder",)

    def __init__(self, boxes_per_phrase: int = 10, regularization: float = 1e-4, power: float = 4.0) -> None:
        if boxes_per_phrase < 1 or regularization < 0 or power < 0:
            raise ValueError(
                f"boxes_per_phrase is {boxes_per_phrase}, regularization {regularization} and power {power}: expected "
                "1 or more, and 0 or more"
            )
        self.boxes_per_phrase, self.regularization, self.power = boxes_per_phrase, regularization, power

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        pairs = inputs.phrases("train")
        blocks = phrase_blocks(pairs, pairs.resampled(self.boxes_per_phrase))
        return fit_cca(model, blocks, regularization=self.regularization, power=self.power)


def phrase_blocks(pairs: PhraseBoxPairs, positives: Tensor) -> Iterator[PairedBlock]:
    """Yield boxes with their phrases; ``positives`` (n, 2) are rows of phrases and numbers of their boxes."""
    for rows in positives[positives[:, 1].argsort(stable=True)].split(BATCH):
        boxes, image = rows[:, 1].unique(return_inverse=True)
        features = pairs.boxes(boxes).features[:, 0]
        yield PairedBlock(features, pairs.texts(rows[:, 0]).values, image)
