"""Training: ``fit`` trains embeddings, ``run_epochs`` is the loop of every training."""

from bifocal.training.distributed import World, torchrun_world
from bifocal.training.fit import fit
from bifocal.training.gradients import Precision, recompute_activations
from bifocal.training.loop import TrainingTask, run_epochs
from bifocal.training.phases import TrainingPhase, train_phases
