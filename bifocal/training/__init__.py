"""Training: one loop for every model and every loss."""

from bifocal.training.distributed import World, torchrun_world
from bifocal.training.gradients import Precision, recompute_activations
from bifocal.training.loop import fit
from bifocal.training.sampling import Sampler, add_captions, dealt, distinct_batches, epoch_batches
from bifocal.training.validation import Recall, Validation, model_ranks, recalls, validate

__all__ = [
    "Precision",
    "Recall",
    "Sampler",
    "Validation",
    "World",
    "add_captions",
    "dealt",
    "distinct_batches",
    "epoch_batches",
    "fit",
    "model_ranks",
    "recalls",
    "recompute_activations",
    "torchrun_world",
    "validate",
]
