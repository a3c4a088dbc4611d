"""Training: one loop for every model and every loss."""

from bifocal.training.distributed import World, torchrun_world
from bifocal.training.gradients import Precision, recompute_activations
from bifocal.training.loop import fit
