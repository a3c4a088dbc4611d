"""Agreement of image similarities with people who judged triplets of images."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.datasets.formats.human_triplets import read_triplets
from bifocal.metrics import triplet_agreement
from bifocal.metrics.ranking.semantic_relevance import caption_vectors, image_vectors, matched_captions
from bifocal.report.metric_rows import MetricRow
from bifocal.text.vectorizers import TFIDF, FisherVectors
from bifocal.text.vectorizers.base import Vectorizer

FISHER: dict[str, Any] = {"dim": 100, "components": 512}
"""Fisher vectors of word2vec for matching captions."""
LABELS = {
    "agreement": "Model",
    "tf_idf": "Captions, tf-idf",
    "tf_idf_matched": "Matched captions, tf-idf",
    "fisher_matched": "Matched captions, Fisher vectors",
}


def triplet_metrics(path: Path, images: Tensor, dataset: Dataset, split: Dataset, seed: int) -> dict[str, float]:
    """Return the agreement with people in percent, of the model and of similarities of the captions.

    ``tf_idf`` compares the captions of each image as one text; the ``matched`` ones compare single captions, see
    ``bifocal.metrics.match_kernel``. Triplets with images outside the split are counted as ``left_out``.

    Args:
        images: embeddings of the images of ``split``, of unit norm.
        dataset: all splits; tf-idf and Fisher vectors are fitted on its training captions.

    Raises:
        ValueError: the file is malformed, or no triplet has all its images in the split.
    """
    table = read_triplets(path)
    row_of_image = {image_id: row for row, image_id in enumerate(split.images["image_id"])}
    names = ["query", "first", "second"]
    kept = table[table[names].isin(list(row_of_image)).all(axis=1)]
    if not len(kept):
        raise ValueError(f"{path}: none of {len(table)} triplets has all of its images in the evaluated split")
    votes = torch.from_numpy(kept[["o1", "o2", "o3"]].to_numpy())
    rows = kept[names].map(lambda image_id: row_of_image[image_id]).to_numpy()
    tf_idf = fit_on_captions(TFIDF(), dataset, split, seed)
    whole_images = image_vectors(tf_idf, split)

    def agreement(score: Callable[[int, int], float]) -> float:
        scores = torch.tensor([[score(query, other) for other in others] for query, *others in rows.tolist()])
        return triplet_agreement(scores[:, 0], scores[:, 1], votes)

    captions: list[list[int]] = [[] for _ in row_of_image]
    for row, image_id in enumerate(split.captions["image_id"]):
        captions[row_of_image[image_id]].append(row)

    def matched(vectorizer: Vectorizer) -> float:
        vectors = caption_vectors(vectorizer, list(split.captions["text"]))
        return agreement(lambda query, other: matched_captions(vectors, captions[query], captions[other]))

    return {
        "agreement": agreement(lambda query, other: float(images[query] @ images[other])),
        "tf_idf": agreement(lambda query, other: float((whole_images[query] @ whole_images[other].T).sum())),
        "tf_idf_matched": matched(tf_idf),
        "fisher_matched": matched(fit_on_captions(FisherVectors(**FISHER), dataset, split, seed)),
        "triplets": len(kept),
        "left_out": len(table) - len(kept),
    }


def triplet_rows(metrics: Mapping[str, float]) -> list[MetricRow]:
    """Return the agreements as scalars."""
    return [MetricRow(f"triplets.{name}", metrics[name], label, unit="%") for name, label in LABELS.items()]


def fit_on_captions(vectorizer: Vectorizer, dataset: Dataset, split: Dataset, seed: int) -> Vectorizer:
    """Return ``vectorizer``, fitted on the training captions, or on those of ``split`` if there are none."""
    training = dataset.split("train").captions["text"]
    vectorizer.fit(list(training if len(training) else split.captions["text"]), seed)
    return vectorizer
