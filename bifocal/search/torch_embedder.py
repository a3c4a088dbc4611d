"""Embeddings of sentences by a model of torch, for search in a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bifocal.models.batch import to_device
from bifocal.models.embedding import DualEncoder, dual_encoder
from bifocal.text.vectorizers.base import FittedVectorizer


@dataclass(frozen=True)
class TorchEmbedder:
    """A trained model that has one vector for each image and each text.

    Args:
        model: a dual encoder, such as a ``TwoBranchModel``.
        vectorizer: vectorizer of the text that the model was trained on, see
            ``bifocal.text.vectorizers.base.load_vectorizer``.

    Raises:
        TypeError: the model has no single vector for an image.
    """

    model: DualEncoder
    vectorizer: FittedVectorizer

    def __post_init__(self) -> None:
        dual_encoder(self.model, instead="search with GroundingSearch")

    def embed_sentences(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings (B, d) float32 of B sentences."""
        self.model.eval()
        text = to_device(self.vectorizer.vectorize(list(sentences)), self.model.device)
        with torch.inference_mode():
            vectors: NDArray[np.float32] = self.model.embed_captions(text).float().cpu().numpy()
        return vectors
