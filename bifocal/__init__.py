"""Visual-semantic embeddings: images and sentences in one space, where closeness is meaning.

``bifocal.load("runs/mine")`` returns a trained model, see ``bifocal.search.trained_model.TrainedModel``.
"""

from bifocal.registry import lazy_attributes

# Not one literal: a stage's code is found by module names in the sources, and every stage imports this file.
__getattr__ = lazy_attributes(__name__, dict.fromkeys(("load", "TrainedModel"), f"{__name__}.search.trained_model"))
