"""A run as an encoder of MTEB, for its image tasks."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta
from numpy.typing import NDArray

from bifocal.search.trained_model import TrainedModel


class MTEBEncoder(AbsEncoder):  # type: ignore[misc]
    """Unit vectors of the texts or the images of a task, by the exported graphs of a run; their
    cosine is the score.

    An input with an image and a text has the normalized sum of both vectors.

    Args:
        directory: run folder.

    Raises:
        FileNotFoundError: the folder holds no exported model.
    """

    def __init__(self, directory: Path | str) -> None:
        self.model = TrainedModel(directory)
        name = f"bifocal/{Path(directory).resolve().name}"
        self.mteb_model_meta = ModelMeta.create_empty(
            {"name": name, "modalities": ["image", "text"]}
        )

    def encode(self, inputs: Iterable[Mapping[str, Any]], **_: Any) -> NDArray[np.float32]:
        """Return the vectors (N, d) of all batches of ``inputs``, which have lists under ``text``,
        ``image`` or both.

        Raises:
            ValueError: a batch has neither.
        """
        return np.concatenate([self._encode(batch) for batch in inputs])

    def _encode(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        vectors = []
        if "image" in batch:
            vectors.append(self.model.encode_image(batch["image"]))
        if "text" in batch:
            vectors.append(self.model.encode_text(list(batch["text"])))
        if not vectors:
            raise ValueError(f"a batch has {', '.join(batch)}: this encoder reads image and text")
        total = np.sum(vectors, axis=0)
        unit: NDArray[np.float32] = total / np.linalg.norm(total, axis=1, keepdims=True)
        return unit
