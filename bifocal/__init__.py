"""Visual-semantic embeddings: images and sentences in one space, where closeness is meaning.

``bifocal.load("runs/mine")`` returns a trained model, see
``bifocal.search.trained_model.TrainedModel``.
"""

import os
from typing import TYPE_CHECKING

# ONNX Runtime and the hub's library would report uses to their makers.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from bifocal.registry import lazy_attributes

__all__ = ["TrainedModel", "__version__", "load"]

# Every stage imports this file, and depends on each module that it imports or names in a string.
# Therefore only type checkers import these modules, and no string names one completely.
if TYPE_CHECKING:
    from bifocal.search.trained_model import TrainedModel, load
    from bifocal.version import __version__
else:
    __getattr__ = lazy_attributes(
        __name__,
        {
            "TrainedModel": "search.trained_model",
            "load": "search.trained_model",
            "__version__": "version",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
