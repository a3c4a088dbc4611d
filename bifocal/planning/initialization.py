"""Memory and operations of initializations that are fitted to the training images, from a simulation of their code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bifocal.backbones.whitening import learn_whitening
from bifocal.baselines.cca import PairedBlock, fit_cca
from bifocal.datasets.published import PublishedCorpus
from bifocal.image_encoders import RMACEncoder
from bifocal.models.base import Model
from bifocal.models.embedding import BATCH
from bifocal.planning.features import NO_WORK
from bifocal.planning.memory import remembered
from bifocal.planning.simulation import Simulation, Work
from bifocal.planning.training import EMBEDDED, ModelInputs
from bifocal.registry import build
from bifocal.training.initialization import CCA, FromEmbedding, PCAWhitening, PhraseCCA
from bifocal.training.initialization.pca_whitening import BATCH as WHITENED


@dataclass(frozen=True)
class InitializationCost:
    """A fit to the training images.

    Attributes:
        peak: bytes of weights, of batches and of covariances at once.
        work: of the whole fit.
        images: images that are read.
    """

    peak: int = 0
    work: Work = NO_WORK
    images: int = 0


@remembered
def simulate_initialization(
    inputs: ModelInputs, initialization: Any, corpus: PublishedCorpus
) -> InitializationCost | None:
    """Run the fit on shapes alone.

    Args:
        initialization: reference to a part of ``bifocal.training.initialization``.

    Returns:
        None for an initialization whose cost is unknown.
    """
    part = build("bifocal.training.initialization", initialization)
    train = corpus.images.get("train", 0)
    if isinstance(part, FromEmbedding):
        return InitializationCost()
    if isinstance(part, CCA | PhraseCCA):
        texts = corpus.phrase_pairs if isinstance(part, PhraseCCA) else corpus.captions("train")
        return _cca(inputs, images=train, texts=texts)
    if isinstance(part, PCAWhitening):
        return _whitening(inputs, images=min(part.images, train))
    return None


def _cca(inputs: ModelInputs, images: int, texts: int) -> InitializationCost:
    blocks = max(1, images // BATCH)

    def fit(model: Model, count: int) -> None:
        pairs = max(1, texts // max(1, images)) * BATCH
        block = PairedBlock(
            torch.empty(BATCH, inputs.features.model_dim, dtype=torch.float64),
            torch.empty(pairs, inputs.text.format.dim),
            torch.arange(pairs) * BATCH // pairs,
        )
        fit_cca(model, [block] * count)

    (_, first), (peak, second) = (_run(inputs, fit, count) for count in (2, 3))
    block = second.minus(first)
    return InitializationCost(peak, first.minus(block.times(2)).plus(block.times(blocks)), images)


def _whitening(inputs: ModelInputs, images: int) -> InitializationCost:
    def fit(model: Model, count: int) -> None:
        encoder = model.image_encoder
        assert isinstance(encoder, RMACEncoder)
        pixels, mask, _ = inputs.features.batch(count)
        learn_whitening([encoder.region_vectors(pixels.float(), mask)], encoder.dim)

    (small, first), (large, second) = (_run(inputs, fit, count) for count in EMBEDDED)
    difference = EMBEDDED[1] - EMBEDDED[0]
    peak = small + (large - small) / difference * (WHITENED - EMBEDDED[0])
    image = second.minus(first).times(1 / difference)
    return InitializationCost(round(peak), first.plus(image.times(images - EMBEDDED[0])), images)


def _run(inputs: ModelInputs, fit: Callable[[Model, int], None], count: int) -> tuple[int, Work]:
    """Return the peak memory and the work of a fit to ``count`` batches or images."""
    simulation = Simulation()
    model = inputs.build(simulation).eval()
    with simulation, torch.no_grad():
        fit(model, count)
    return simulation.peak, simulation.work
