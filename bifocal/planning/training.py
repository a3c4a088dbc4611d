"""Memory and operations of a training step and of embedding a collection, from a simulation of the real code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bifocal.datasets.published import PublishedCorpus
from bifocal.export.encoders import chosen_localizer
from bifocal.features import RegionBatch
from bifocal.models import build_model
from bifocal.models.base import Model
from bifocal.models.batch import Batch
from bifocal.planning.features import ExpectedFeatures
from bifocal.planning.memory import remembered
from bifocal.planning.simulation import Simulation, Work
from bifocal.registry import build
from bifocal.serving.sessions import REGIONS
from bifocal.sorters import LSTMSorter
from bifocal.text import TextBatch
from bifocal.text.expected import ExpectedText
from bifocal.training.batches.expected import ExpectedBatches
from bifocal.training.distributed import World
from bifocal.training.freezing import apply_freezing
from bifocal.training.gradients import Precision, TwoTower, backward, recompute_activations
from bifocal.training.optimizers import build_optimizer

EMBEDDED = (32, 40)
"""Images of the two batches from which the memory of embedding is extrapolated."""


@dataclass(frozen=True)
class StepCost:
    """A training step.

    Attributes:
        peak: bytes of weights, gradients, optimizer state, batch and activations at once.
        state: bytes of weights and optimizer state, which a checkpoint has.
        weights: bytes of the weights alone.
        work: of the step.
    """

    peak: int
    state: int
    weights: int
    work: Work


@dataclass(frozen=True)
class EmbeddingCost:
    """Embedding without gradients.

    Attributes:
        peak: bytes of the weights and of a batch of images in the network.
        weights: bytes of the weights alone.
        image, caption: work for one image and one caption.
        kept: bytes of the embedding of one image and of one caption while a collection is ranked; 0 for an image if all
            scores are kept instead.
        dim: D of the vector of an image; None for a late-interaction model, whose images have several.
        regions: number and dimension of the vectors of an image's regions in a collection; (0, 0) without a localizer.
    """

    peak: int
    weights: int
    image: Work
    caption: Work
    kept: tuple[int, int]
    dim: int | None
    regions: tuple[int, int]


@dataclass(frozen=True)
class ModelInputs:
    """What a model is built from, and what it is trained on.

    Attributes:
        model: reference to a part of ``bifocal.models``, with its encoders.
        features, text: of the corpus.
        words: tokens of a caption.
    """

    model: Any
    features: ExpectedFeatures
    text: ExpectedText
    words: int

    @classmethod
    def of(cls, model: Any, features: ExpectedFeatures, text: ExpectedText, corpus: PublishedCorpus) -> "ModelInputs":
        """Return the inputs of a published corpus; captions have their mean length."""
        return cls(model, features, text, max(1, round(text.tokens(corpus.words_per_caption))))

    def build(self, simulation: Simulation) -> Model:
        """Return the model with weights of the simulation."""
        with torch.device("meta"):
            model = build_model(
                self.model,
                feature_dim=self.features.model_dim,
                text_dim=self.text.format.dim,
                text_format=self.text.format.name,
                vocabulary_size=self.text.vocabulary_size,
                network=self.text.network,
            )
        simulation.materialize(model)
        return model

    def captions(self, count: int) -> TextBatch:
        """Return captions of the shape of the text; call it in a ``Simulation``."""
        text_format, lengths = self.text.format, torch.full((count,), self.words)
        if text_format.name in ("tokens", "subwords"):
            return TextBatch(torch.ones(count, self.words, dtype=torch.int64), lengths)
        if text_format.name == "contextual":
            return TextBatch(torch.empty(count, text_format.layers, self.words, text_format.dim), lengths)
        return TextBatch(torch.empty(count, text_format.dim), torch.ones(count, dtype=torch.int64))


@remembered
def simulate_step(
    inputs: ModelInputs,
    batches: ExpectedBatches,
    *,
    loss: Any,
    optimizer: Any,
    frozen_until: Mapping[str, int | None],
    epoch: int,
    precision: Precision,
    micro_batch_size: int | None = None,
    gradient_checkpointing: bool = False,
) -> StepCost:
    """Run one training step on shapes alone; the arguments are those of ``fit``.

    Args:
        loss: reference to a part of ``bifocal.losses``; a sorter has the length of the batch.
        epoch: epoch of the phase, which decides what is frozen.
    """
    simulation = Simulation()
    model = inputs.build(simulation)
    if gradient_checkpointing:
        recompute_activations(model)
    weights = simulation.live
    apply_freezing(model, frozen_until, epoch)
    with simulation:
        criterion: nn.Module = build("bifocal.losses", loss, sorter=LSTMSorter(batches.captions))
        parameters = [*model.parameters(), *criterion.parameters()]
        algorithm = build_optimizer(optimizer, parameters, 0.1)
        for group in algorithm.param_groups:
            group["foreach"] = True  # the default on a GPU
        regions = inputs.features.batch(batches.images, batches.regions)
        batch = Batch([], regions, inputs.captions(batches.captions), batches.matches())
        backward(
            model,
            criterion,
            batch,
            precision=precision,
            micro_batch_size=micro_batch_size,
            seed=0,
            world=World.current(),
        )
        algorithm.step()
        algorithm.zero_grad()
        moments = sum(
            value.numel() * value.element_size() for state in algorithm.state.values() for value in state.values()
        )
    return StepCost(simulation.peak, weights + moments, weights, simulation.work)


@remembered
def simulate_embedding(inputs: ModelInputs, batch_size: int) -> EmbeddingCost:
    """Run the two encoders on shapes alone, without gradients.

    Args:
        batch_size: images that are embedded at once; the memory is extrapolated from smaller batches.
    """
    simulation = Simulation()
    model = inputs.build(simulation).eval()
    weights = simulation.live
    assert isinstance(model, Model)
    assert isinstance(model, TwoTower)
    peaks = []
    with simulation, torch.no_grad():
        for count in EMBEDDED:
            simulation.reset_peak()
            embedded = model.embed_images(inputs.features.batch(count))
            peaks.append(simulation.peak)
        images = simulation.work.times(1 / sum(EMBEDDED))
        before = simulation.work
        captioned = model.embed_captions(inputs.captions(EMBEDDED[0]))
        captions = simulation.work.minus(before).times(1 / EMBEDDED[0])
        regions = _region_vectors(model, inputs.features.batch(1))
    per_image = (peaks[1] - peaks[0]) / (EMBEDDED[1] - EMBEDDED[0])
    peak = round(peaks[0] + per_image * (batch_size - EMBEDDED[0]))
    # The vectors of batches are concatenated; a late-interaction model drops the cells of an image after its scores.
    kept = (2 * _row_bytes(embedded), 2 * _row_bytes(captioned)) if model.single_vector else (0, _row_bytes(captioned))
    dim = model.image_encoder.dim if model.single_vector else None
    return EmbeddingCost(peak, weights, images, captions, kept, dim, regions)


def _region_vectors(model: Model, image: RegionBatch) -> tuple[int, int]:
    """Return number and dimension of the vectors that a localizer without torch reads; (0, 0) for none."""
    chosen = chosen_localizer(model)
    served = None if chosen is None else chosen.served()
    if chosen is None or served is None or not model.single_vector:
        return 0, 0
    encoder = model.image_encoder
    if served.vectors != REGIONS:  # each region as an image of its own
        return image.features.shape[1], encoder.dim
    if encoder.reads_pixels:
        side = encoder.stretched_side or image.features.shape[2]
        vectors = encoder.pixel_regions(torch.empty(1, 3, side, side))
    else:
        vectors = chosen.encode(encoder, image).vectors
    return vectors.shape[-2], vectors.shape[-1]


def _row_bytes(encodings: Tensor | tuple[Tensor, ...]) -> int:
    tensors = encodings if isinstance(encodings, tuple) else (encodings,)
    return sum(4 * tensor[0].numel() for tensor in tensors)
