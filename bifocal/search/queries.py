"""Queries by text, by image, and by image with words added or subtracted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bifocal.batch import to_device
from bifocal.embedding import DualEncoder, dual_encoder
from bifocal.search.index import Index, SearchHit
from bifocal.text.vectorizers.base import FittedVectorizer

Explain = Callable[[str, Tensor], Any]
"""Explanation of a result from its image_id and the query (d,), such as ``Heatmaps(model, features)``."""


@dataclass(frozen=True)
class Search:
    """Search in an index with a model that has one vector for each image and each text.

    Args:
        model: a dual encoder, such as a ``TwoBranchModel``.
        vectorizer: vectorizer of the text that the model was trained on, see
            ``bifocal.text.vectorizers.base.load_vectorizer``.
        index: embeddings of the images by the same model.

    Raises:
        TypeError: the model has no single vector for an image.
    """

    model: DualEncoder
    vectorizer: FittedVectorizer
    index: Index

    def __post_init__(self) -> None:
        dual_encoder(self.model, instead="search with GroundingSearch")

    def embed(self, sentence: str) -> Tensor:
        """Return the embedding of a sentence, (d,), float32 on the CPU."""
        self.model.eval()
        text = to_device(self.vectorizer.vectorize([sentence]), self.model.device)
        with torch.inference_mode():
            vector = self.model.embed_captions(text)[0]
        return vector.float().cpu().clone()

    def text(self, sentence: str, k: int = 10, explain: Explain | None = None) -> list[SearchHit]:
        """Return the ``k`` images that fit ``sentence`` best, with the biases of the index, if it has some.

        Args:
            explain: computes the ``explanation`` of each result.
        """
        return self._nearest(self.embed(sentence), k, None, explain, corrected=True)

    def image(
        self,
        image: str | Tensor,
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        k: int = 10,
        explain: Explain | None = None,
    ) -> list[SearchHit]:
        """Return the ``k`` images most similar to ``image``, with the words of ``plus`` added and ``minus`` subtracted.

        Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6.2 and figure 5: the query is
        the sum of the embeddings, those of ``minus`` with a negative sign.

        Args:
            image: id of an image of the index, which is excluded from the results; or the embedding (d,) of any image.
            explain: computes the ``explanation`` of each result.
        """
        query = self.index.embedding(image) if isinstance(image, str) else image.float().cpu()
        for sentence in plus:
            query = query + self.embed(sentence)
        for sentence in minus:
            query = query - self.embed(sentence)
        return self._nearest(query, k, image if isinstance(image, str) else None, explain)

    def _nearest(
        self, query: Tensor, k: int, exclude: str | None, explain: Explain | None, corrected: bool = False
    ) -> list[SearchHit]:
        explain_image = None if explain is None else lambda image_id: explain(image_id, query)
        return self.index.nearest(query, k, exclude=exclude, explain=explain_image, corrected=corrected)
