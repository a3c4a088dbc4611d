"""Training: one loop for every model and every loss."""

from bifocal.training.distributed import World, torchrun_world
from bifocal.training.gradients import Precision, recompute_activations
from bifocal.training.loop import fit
from bifocal.training.sampling import Sampler, add_captions, distinct_batches, epoch_batches
from bifocal.training.validation import model_ranks, validate

__all__ = [
    "Precision",
    "Sampler",
    "World",
    "add_captions",
    "distinct_batches",
    "epoch_batches",
    "fit",
    "model_ranks",
    "recompute_activations",
    "torchrun_world",
    "validate",
]
