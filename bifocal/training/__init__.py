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
    _MODULES = {
        "World": "distributed",
        "torchrun_world": "distributed",
        "FitOptions": "fitting",
        "TrainingPhase": "fitting",
        "fit": "fitting",
        "Precision": "precision",
        "recompute_activations": "gradients",
        "TrainingInputs": "inputs",
        "new_model": "inputs",
        "TrainingTask": "loop",
        "run_epochs": "loop",
        "train_phases": "fitting",
        "prepare_inputs": "preparation",
    }
    __getattr__ = lazy_attributes(
        __name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()}
    )
