"""Scores of pairs of an image and a text, by any model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from bifocal.evaluation.base import Subject
from bifocal.features import RegionBatch
from bifocal.models.batch import to_device
from bifocal.models.embedding import BATCH
from bifocal.models.phrase_locator import embed_texts

IMAGES_PER_BLOCK = 32


def pair_scores(subject: Subject, image_ids: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the score of each text with the image at the same place; both may repeat.

    Raises:
        ValueError: an image is not in the split of ``subject``.
    """
    row_of_image = {image_id: row for row, image_id in enumerate(subject.pairs.image_ids)}
    absent = sorted(set(image_ids) - row_of_image.keys())
    if absent:
        raise ValueError(f"{len(absent)} images are not in the split {subject.split_name}, such as {absent[0]}")
    images = np.array([row_of_image[image_id] for image_id in image_ids], dtype=np.int64)
    if subject.image_embeddings is not None:
        row_of_text = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors = embed_texts(subject.model, subject.vectorizer, list(row_of_text)).cpu().double()
        encoded = normalize(subject.image_embeddings, dim=1)[torch.from_numpy(images)].double()
        rows = torch.tensor([row_of_text[text] for text in texts], dtype=torch.int64)
        scores: NDArray[np.float64] = (encoded * vectors[rows]).sum(dim=1).numpy()
        return scores
    scores = np.empty(len(texts))
    for block, regions in enumerate(subject.pairs.image_batches(IMAGES_PER_BLOCK)):
        chosen = np.flatnonzero(images // IMAGES_PER_BLOCK == block)
        first = block * IMAGES_PER_BLOCK
        scores[chosen] = _own_scores(subject, regions, images[chosen] - first, [texts[row] for row in chosen.tolist()])
    return scores


def _own_scores(
    subject: Subject, regions: RegionBatch, images: NDArray[np.integer], sentences: Sequence[str]
) -> NDArray[np.float64]:
    """Return the score of each sentence with its image, a row of ``regions``, by a model without single vectors."""
    model: Any = subject.model
    model.eval()
    scores = []
    with torch.inference_mode():
        cells = model.embed_images(to_device(regions, model.device))
        for start in range(0, len(sentences), BATCH):
            batch = list(sentences[start : start + BATCH])
            captions = model.embed_captions(to_device(subject.vectorizer.vectorize(batch), model.device))
            rows = torch.tensor(images[start : start + BATCH])
            scores.append(model.score(cells, captions).cross[rows, torch.arange(len(batch))].double().cpu())
    return torch.cat(scores).numpy() if scores else np.empty(0)
