"""Search with models of torch, in a notebook: embeddings of sentences, heatmaps, and late
interaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.features import FeatureStore
from bifocal.localization import AutoLocalizer, rasterize
from bifocal.localization.base import Localizer
from bifocal.models import GroundingModel
from bifocal.models.base import Model
from bifocal.models.batch import BATCH, DualEncoder, dual_encoder, to_device
from bifocal.search.items import Items
from bifocal.search.query import Explain, Results, SearchHit
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


@dataclass(frozen=True)
class Heatmaps:
    """Heatmaps of results: ``search("a red star", explain=Heatmaps(model, features))``.

    Args:
        model: the model of the search.
        features: store with the images of the index and their boxes.
        localizer: computes the heatmap of a query; None for the localizer of the model's image
            encoder.
        size: pixels, side of the square to which the image is mapped.

    Raises:
        ValueError: the model's image encoder has no localizer.
    """

    model: Model
    features: FeatureStore
    localizer: Localizer | None = None
    size: int = 64

    def __post_init__(self) -> None:
        self._localizer()

    def __call__(self, image_id: str, query: NDArray[Any] | Tensor) -> Tensor:
        """Return the heatmap (size, size) of the query (d,), rows from the top; see
        ``rasterize``."""
        device = self.model.device
        vector = query if isinstance(query, Tensor) else torch.from_numpy(np.array(query))
        text = vector.float()[None].to(device)
        regions = to_device(self.features.gather(self.features.rows([image_id])), device)
        with torch.inference_mode():
            region_scores = self._localizer()(self.model.image_encoder, regions, text)
        scores, boxes = (part[0].float().cpu() for part in region_scores)
        present = ~scores.isneginf()
        return rasterize(scores[present], boxes[present], self.size, self.size)

    def _localizer(self) -> Localizer:
        localizer = (self.localizer or AutoLocalizer()).for_model(self.model)
        if localizer is None:
            name = type(self.model.image_encoder).__name__
            raise ValueError(f"a {name} has no localizer: search without explain")
        return localizer


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
        cls,
        model: GroundingModel,
        vectorizer: FittedVectorizer,
        image_ids: Sequence[str],
        features: FeatureStore,
    ) -> "GroundingSearch":
        """Encode the images of ``image_ids``, and return a search among them."""
        model.eval()
        batches = torch.from_numpy(features.rows(image_ids)).split(BATCH)
        with torch.inference_mode():
            cells = [
                model.embed_images(to_device(features.gather(rows), model.device)).cpu()
                for rows in batches
            ]
        return cls(model, vectorizer, image_ids, torch.cat(cells))

    def __call__(self, sentence: str, k: int = 10, *, explain: Explain | None = None) -> Results:
        """Return the ``k`` images that fit ``sentence`` best, by R_w + R_s; equal scores keep their
        order."""
        self.model.eval()
        device = self.model.device
        with torch.inference_mode():
            captions = self.model.embed_captions(
                to_device(self.vectorizer.vectorize([sentence]), device)
            )
            blocks = [
                self.model.score(cells.to(device), captions).cross[:, 0].cpu()
                for cells in self.cells.split(BATCH)
            ]
        scores, query = torch.cat(blocks), captions[0][0].float().cpu().numpy()
        best = scores.argsort(descending=True, stable=True)[:k].tolist()
        facts = Items(pa.table({"item_id": list(self.image_ids)})).facts
        hits = [
            SearchHit(**facts(row), score=float(scores[row]), probability=None, relevance=None)
            for row in best
        ]
        for hit, row in zip(hits, best, strict=True):
            hit.row, hit.explanation = row, None if explain is None else explain(hit.id, query)
        return Results(hits, True, len(self.image_ids), k < len(self.image_ids), "", [])
