"""Search by text with a model that compares words with cells, and has no single vector for an image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bifocal.batch import to_device
from bifocal.embedding import BATCH
from bifocal.features import FeatureStore
from bifocal.models import GroundingModel
from bifocal.search.index import SearchHit
from bifocal.text.vectorizers.base import FittedVectorizer


@dataclass(frozen=True)
class GroundingSearch:
    """A ``GroundingModel`` that answers texts: every sentence is scored against the cells of all images.

    Args:
        model: of cells and words.
        reader: the vectorizer of the text that it was trained on.
        image_ids: of the N images.
        cells: (N, L, R, d) of them, see ``GroundingModel.embed_images``; they stand in memory.
    """

    model: GroundingModel
    reader: FittedVectorizer
    image_ids: Sequence[str]
    cells: Tensor

    @classmethod
    def from_features(
        cls, model: GroundingModel, reader: FittedVectorizer, image_ids: Sequence[str], features: FeatureStore
    ) -> "GroundingSearch":
        """Encode these images, and search among them."""
        model.eval()
        rows = torch.from_numpy(features.rows(image_ids)).split(BATCH)
        with torch.inference_mode():
            cells = [model.embed_images(to_device(features.gather(some), model.device)).cpu() for some in rows]
        return cls(model, reader, image_ids, torch.cat(cells))

    def by_text(
        self, sentence: str, k: int = 10, explain: Callable[[str, Tensor], Any] | None = None
    ) -> list[SearchHit]:
        """The images that ``sentence`` describes best, by R_w + R_s; equal ones in the collection's order.

        Args:
            explain: called with the image_id of each result and the sentence's vector (d,), such as
                ``Heatmaps(model, features)``.
        """
        self.model.eval()
        device = self.model.device
        with torch.inference_mode():
            captions = self.model.embed_captions(to_device(self.reader.vectorize([sentence]), device))
            blocks = [
                self.model.score(cells.to(device), captions).cross[:, 0].cpu() for cells in self.cells.split(BATCH)
            ]
        scores, query = torch.cat(blocks), captions[0][0].float().cpu().clone()
        best = scores.argsort(descending=True, stable=True)[:k].tolist()
        names = [(self.image_ids[row], float(scores[row])) for row in best]
        return [SearchHit(image_id, score, explain(image_id, query) if explain else None) for image_id, score in names]
