"""Search by text with a model that compares words with cells and has no single vector for an image."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bifocal.features import FeatureStore
from bifocal.models import GroundingModel
from bifocal.models.batch import to_device
from bifocal.models.embedding import BATCH
from bifocal.search.index import SearchHit
from bifocal.search.queries import Explain
from bifocal.text.vectorizers.base import FittedVectorizer


@dataclass(frozen=True)
class GroundingSearch:
    """Search with a ``GroundingModel``, which scores a sentence against the cells of all images.

    Args:
        model: compares words with cells.
        vectorizer: vectorizer of the text that the model was trained on.
        image_ids: ids of the N images.
        cells: (N, L, R, d), see ``GroundingModel.embed_images``; held in memory.
    """

    model: GroundingModel
    vectorizer: FittedVectorizer
    image_ids: Sequence[str]
    cells: Tensor

    @classmethod
    def from_features(
        cls, model: GroundingModel, vectorizer: FittedVectorizer, image_ids: Sequence[str], features: FeatureStore
    ) -> "GroundingSearch":
        """Encode the images of ``image_ids``, and return a search among them."""
        model.eval()
        batches = torch.from_numpy(features.rows(image_ids)).split(BATCH)
        with torch.inference_mode():
            cells = [model.embed_images(to_device(features.gather(rows), model.device)).cpu() for rows in batches]
        return cls(model, vectorizer, image_ids, torch.cat(cells))

    def text(self, sentence: str, k: int = 10, explain: Explain | None = None) -> list[SearchHit]:
        """Return the ``k`` images that fit ``sentence`` best, by R_w + R_s; equal scores keep the collection's order.

        Args:
            explain: computes the ``explanation`` of each result, from its id and the sentence's vector (d,).
        """
        self.model.eval()
        device = self.model.device
        with torch.inference_mode():
            captions = self.model.embed_captions(to_device(self.vectorizer.vectorize([sentence]), device))
            blocks = [
                self.model.score(cells.to(device), captions).cross[:, 0].cpu() for cells in self.cells.split(BATCH)
            ]
        scores, query = torch.cat(blocks), captions[0][0].float().cpu().numpy()
        best = scores.argsort(descending=True, stable=True)[:k].tolist()
        hits = [SearchHit(row, self.image_ids[row], float(scores[row])) for row in best]
        return hits if explain is None else [replace(hit, explanation=explain(hit.item_id, query)) for hit in hits]
