"""Training: ``fit`` trains embeddings, ``run_epochs`` is the loop of every training; modules load
at first use."""

from typing import TYPE_CHECKING

from bifocal.registry import lazy_attributes

if TYPE_CHECKING:
    from bifocal.training.distributed import World, torchrun_world
    from bifocal.training.fitting import FitOptions, TrainingPhase, fit, train_phases
    from bifocal.training.gradients import recompute_activations
    from bifocal.training.inputs import TrainingInputs, new_model
    from bifocal.training.loop import TrainingTask, run_epochs
    from bifocal.training.precision import Precision
    from bifocal.training.preparation import prepare_inputs
else:
    __getattr__ = lazy_attributes(
        __name__,
        {
            "World": "training.distributed",
            "torchrun_world": "training.distributed",
            "FitOptions": "training.fitting",
            "TrainingPhase": "training.fitting",
            "fit": "training.fitting",
            "Precision": "training.precision",
            "recompute_activations": "training.gradients",
            "TrainingInputs": "training.inputs",
            "new_model": "training.inputs",
            "TrainingTask": "training.loop",
            "run_epochs": "training.loop",
            "train_phases": "training.fitting",
            "prepare_inputs": "training.preparation",
        },
    )
