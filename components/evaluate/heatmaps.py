"""Examples with heatmaps: phrases that were pointed at, and what made two images similar."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.batch import to_device
from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.localization import pair_heatmaps, rasterize
from components.evaluate.grounding import Grounded
from components.evaluate.pointer import model_encoder

SIDE = 96
"""Pixels along each side of a heatmap."""
PLACES = NDArray[np.float64]


@dataclass(frozen=True)
class Heated:
    """An image and a heatmap of it.

    Attributes:
        heatmap: (h, w); -inf where nothing is known.
        boxes: (n, 4), true ones, x0 y0 x1 y1 in percent of the image's width and height.
        spot: (2,), where the heatmap points, likewise; None where nothing is asked.
    """

    image_id: str
    heatmap: NDArray[np.floating]
    boxes: PLACES
    spot: PLACES | None = None
    text: str = ""
    hit: bool = False


@dataclass(frozen=True)
class Similar:
    """A query image and the image of the split that is most like it, with what contributed; and their cosine."""

    first: Heated
    second: Heated
    cosine: float


def pointed_examples(grounded: Grounded, count: int, seed: int) -> list[Heated]:
    """``count`` phrases, drawn: misses first, at most half of them, each of another image."""
    pointer, pointing = grounded.pointer, grounded.pointing
    if pointer is None or pointing is None:
        return []
    order = np.random.default_rng(seed).permutation(len(pointing.hits))
    chosen: list[int] = []
    for wanted, most in ((False, count // 2), (True, count)):
        images = set(pointing.phrases["image_id"].iloc[chosen])
        for place in order:
            image = pointing.phrases["image_id"].iloc[place]
            if len(chosen) < most and pointing.hits[place] == wanted and image not in images:
                chosen.append(int(place))
                images.add(image)
    found = []
    for place, scores, boxes in zip(chosen, *pointer.locate(pointing.phrases.iloc[chosen]), strict=True):
        row, size = pointing.phrases.iloc[place], pointing.sizes[place]
        found.append(
            Heated(
                image_id=str(row["image_id"]),
                heatmap=_dense(scores, boxes),
                boxes=100 * row["boxes"].astype(np.float64) / np.tile(size, 2),
                spot=100 * pointing.points[place] / size,
                text=str(row["phrase"]),
                hit=bool(pointing.hits[place]),
            )
        )
    return found


def similar_pairs(
    model: Any, images: Tensor | None, features: FeatureStore, split: Dataset, count: int, seed: int
) -> list[Similar]:
    """For a few drawn images the one that is most like each, and Grad-CAM of the two (Gordo and Larlus, section 6).

    Args:
        images: embeddings of the split's images; None of a model without.

    Returns:
        nothing where the features have no places, or the model no vector of an image alone.
    """
    if images is None or len(images) < 2 or (not features.pixels and features.gather([0]).boxes.isnan().all()):
        return []
    images, ids = normalize(images, dim=1), list(split.images["image_id"])
    encoder, found = model_encoder(model), []
    for query in sorted(np.random.default_rng(seed).permutation(len(ids))[:count].tolist()):
        scores = images @ images[query]
        scores[query] = -torch.inf
        other = int(scores.argmax())
        with torch.inference_mode():
            both = [
                encoder.last_activations(to_device(features.gather(features.rows([ids[row]])), model.device))
                for row in (query, other)
            ]
            heat = pair_heatmaps(both[0].embed, both[0].cells, both[1].cells, embed_second=both[1].embed)
        first, second = (
            Heated(ids[row], _dense(heat[place], both[place].boxes), np.empty((0, 4)))
            for place, row in enumerate((query, other))
        )
        found.append(Similar(first, second, float(scores[other])))
    return found


def _dense(scores: Tensor, boxes: Tensor) -> NDArray[np.floating]:
    heatmap: NDArray[np.floating] = rasterize(scores.float().cpu(), boxes.float().cpu(), SIDE, SIDE).numpy()
    return heatmap
