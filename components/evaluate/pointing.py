"""Pointing at the phrases of a split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.batch import to_device
from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.localization import Located, OwnLocalizer, points
from bifocal.localization.base import Localizer
from bifocal.metrics import centre_hits, pointing_hits, random_chances
from bifocal.metrics.bootstrap import bootstrap_means, percentile_interval
from bifocal.text.vectorizer import SentenceReader

BATCH = 256


@dataclass(frozen=True)
class Pointing:
    """The phrases of a split, and where the model points for each.

    Attributes:
        phrases: rows of the phrases' table.
        sizes: (P, 2), width and height of each phrase's image, pixels.
        points: (P, 2), x y in pixels.
        hits: (P,) bool.
    """

    phrases: pd.DataFrame
    sizes: NDArray[np.float64]
    points: NDArray[np.float64]
    hits: NDArray[np.bool_]

    def report(self, resamples: int, seed: int) -> dict[str, Any]:
        """Accuracy in percent, its interval over images, and the baselines."""
        boxes = list(self.phrases["boxes"])
        image = torch.from_numpy(pd.factorize(self.phrases["image_id"])[0].astype(np.int64))
        totals = torch.zeros(int(image.max()) + 1, 1, dtype=torch.float64)
        totals.index_add_(0, image, torch.from_numpy(100.0 * self.hits).unsqueeze(1))
        counts = image.bincount().unsqueeze(1)
        low, high = percentile_interval(bootstrap_means(totals, counts, resamples, seed)[:, 0], 0.95)
        return {
            "accuracy": 100 * float(self.hits.mean()),
            "low": low,
            "high": high,
            "centre": 100 * float(centre_hits(self.sizes, boxes).mean()),
            "random": 100 * float(random_chances(self.sizes, boxes).mean()),
            "phrases": len(self.hits),
        }


def can_point(model: Any, localizer: Localizer | None, features: FeatureStore, dataset: Dataset) -> str:
    """Why the model is not asked to point; empty if it is."""
    if localizer is None:
        return "No pointing was asked for (evaluate.pointing is null)."
    if not len(dataset.phrases):
        return "The split has no phrases with boxes to point at."
    if isinstance(localizer, OwnLocalizer) and localizer.of(model_encoder(model)) is None:
        return f"A {type(model_encoder(model)).__name__} has no localization of its own."
    if features.gather([0]).boxes.isnan().all():
        return "The features have no boxes, so nothing can be pointed at."
    return ""


def model_encoder(model: Any) -> Any:
    """The image encoder of a model that has one, else the model."""
    return getattr(model, "image_encoder", model)


def point(
    model: Any, localizer: Localizer, features: FeatureStore, reader: SentenceReader, dataset: Dataset
) -> Pointing:
    """Point at every phrase of ``dataset``, each as a text of its own."""
    phrases = dataset.phrases
    sizes = dataset.images.set_index("image_id").loc[phrases["image_id"], ["width", "height"]].to_numpy(np.float64)
    found = [
        points(located).numpy()
        for located in (
            locate(model, localizer, features, reader, phrases.iloc[start : start + BATCH])
            for start in range(0, len(phrases), BATCH)
        )
    ]
    spots = np.concatenate(found).astype(np.float64) * sizes
    return Pointing(phrases, sizes, spots, pointing_hits(spots, list(phrases["boxes"])))


def locate(
    model: Any, localizer: Localizer, features: FeatureStore, reader: SentenceReader, phrases: pd.DataFrame
) -> Located:
    """Heatmaps of some phrases, on the CPU."""
    regions = to_device(features.gather(features.rows(phrases["image_id"])), model.device)
    with torch.inference_mode():
        located = localizer(model_encoder(model), regions, embed_texts(model, reader, list(phrases["phrase"])))
    return Located(*(part.float().cpu() for part in located))


def embed_texts(model: Any, reader: SentenceReader, texts: list[str]) -> Tensor:
    """Embeddings of sentences, phrases or words (T, d), on the model's device; equal ones are read once."""
    unique = sorted(set(texts))
    place = {text: row for row, text in enumerate(unique)}
    with torch.inference_mode():
        found = [
            model.embed_captions(to_device(reader.vectorize(unique[start : start + BATCH]), model.device))
            for start in range(0, len(unique), BATCH)
        ]
    # A grounding model gives the words beside the sentence.
    vectors: Tensor = torch.cat([part[0] if isinstance(part, tuple) else part for part in found])
    return vectors[[place[text] for text in texts]]
