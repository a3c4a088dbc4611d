"""Queries by text, by image, and by image with words added or taken away."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bifocal.embedding import DualEncoder, dual_encoder
from bifocal.search.index import Index, SearchHit
from bifocal.text.vectorizers.base import FittedVectorizer


@dataclass(frozen=True)
class Search:
    """A model that answers from an index.

    Args:
        model: of one vector for each image and each text, such as a ``TwoBranchModel``.
        reader: the vectorizer of the text that it was trained on, see ``bifocal.text.load_vectorizer``.
        index: of the same model.

    Raises:
        TypeError: the model has no single vector for an image.
    """

    model: DualEncoder
    reader: FittedVectorizer
    index: Index

    def __post_init__(self) -> None:
        dual_encoder(self.model, instead="search with GroundingSearch")

    def text(self, sentence: str) -> Tensor:
        """The embedding of a sentence, (d,)."""
        self.model.eval()
        text = self.reader.vectorize([sentence])
        with torch.inference_mode():
            vector = self.model.embed_captions(type(text)(*(part.to(self.model.device) for part in text)))[0]
        return vector.float().cpu().clone()

    def by_text(
        self, sentence: str, k: int = 10, explain: Callable[[str, Tensor], Any] | None = None
    ) -> list[SearchHit]:
        """The images that ``sentence`` describes best.

        Args:
            explain: called with the image_id of each result and the query (d,), such as ``Heatmaps(model, features)``.
        """
        return self._find(self.text(sentence), k, None, explain)

    def by_image(
        self,
        image: str | Tensor,
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        k: int = 10,
        explain: Callable[[str, Tensor], Any] | None = None,
    ) -> list[SearchHit]:
        """The images most like ``image``, with what ``plus`` says added, and what ``minus`` says taken away.

        Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6.2 and figure 5: the query is the
        sum of the embeddings, those of ``minus`` subtracted.

        Args:
            image: name of an image of the index, which is then no result itself; or the embedding (d,) of any image.
            explain: see ``by_text``.
        """
        query = self.index.embedding(image) if isinstance(image, str) else image.float().cpu()
        for words in plus:
            query = query + self.text(words)
        for words in minus:
            query = query - self.text(words)
        return self._find(query, k, image if isinstance(image, str) else None, explain)

    def _find(
        self, query: Tensor, k: int, leave_out: str | None, explain: Callable[[str, Tensor], Any] | None
    ) -> list[SearchHit]:
        told = None if explain is None else lambda image_id: explain(image_id, query)
        return self.index.nearest(query, k, leave_out=leave_out, explain=told)
