"""Visual-semantic embeddings: images and sentences in one space, where closeness is meaning.

``bifocal.load("runs/mine")`` returns a trained model, see ``bifocal.trained.TrainedModel``.
"""

from typing import TYPE_CHECKING

from bifocal.lazy import lazy_attributes

if TYPE_CHECKING:
    from bifocal.trained import TrainedModel, load
else:
    __getattr__ = lazy_attributes(__name__, {"load": "bifocal.trained", "TrainedModel": "bifocal.trained"})
