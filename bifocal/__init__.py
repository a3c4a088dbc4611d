"""Visual-semantic embeddings: images and sentences in one space, where closeness is meaning.

``bifocal.load("runs/mine")`` returns a trained model, see ``bifocal.trained.TrainedModel``.
"""

from bifocal.lazy import lazy_attributes

# A name that is put together here: every module imports this one, and what it names would be code of every stage.
__getattr__ = lazy_attributes(__name__, dict.fromkeys(("load", "TrainedModel"), f"{__name__}.trained"))
