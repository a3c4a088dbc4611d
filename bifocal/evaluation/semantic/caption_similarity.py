"""Similarities of images by their captions and objects: stand-ins for the similarity that people see."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bifocal.datasets import Dataset
from bifocal.datasets.base import SYNSETS
from bifocal.metrics import match_kernel
from bifocal.metrics.ranking.meteor import MeteorSentence, meteor, meteor_sentence
from bifocal.metrics.ranking.semantic_relevance import image_vectors
from bifocal.text.vectorizers import TFIDF, FisherVectors
from bifocal.text.vectorizers.base import training_documents

FISHER: dict[str, Any] = {"dim": 100, "mixture": "gmm", "components": 1, "pca_captions": 1000}
"""Fisher vectors of word2vec; they are compared before PCA, so PCA is small."""

Similarity = Callable[[int, int], float]
"""Similarity of two images of a split, by their rows."""


def fit_tf_idf(dataset: Dataset, split: Dataset) -> TFIDF:
    """Return tf-idf of all words of an image, fitted on train, else on ``split``."""
    vectorizer = TFIDF(documents="images")
    captions = _training_split(dataset, split).captions
    vectorizer.fit(training_documents(vectorizer, captions["image_id"].tolist(), captions["text"].tolist()), seed=0)
    return vectorizer


def caption_similarities(
    dataset: Dataset, split: Dataset, images: Sequence[int], seed: int
) -> Mapping[str, Similarity]:
    """Return the similarities of table 1: ``tf_idf``, ``fisher`` and ``meteor`` of captions, and ``objects``.

    Gordo and Larlus, CVPR 2017, section 4. For tf-idf and Fisher vectors, which are fitted on training captions, all
    words of an image are one bag; METEOR compares single captions, with ``bifocal.metrics.match_kernel``. ``objects``
    needs the labels "synsets", which ``VisualGenome`` reads with ``objects``. ``images`` are the compared rows.
    """
    captions: dict[int, list[str]] = {row: [] for row in sorted(set(images))}
    row_of_image = {image_id: row for row, image_id in enumerate(split.images["image_id"])}
    for image_id, text in zip(split.captions["image_id"], split.captions["text"], strict=True):
        if row_of_image[image_id] in captions:
            captions[row_of_image[image_id]].append(text)
    similarities = {
        "tf_idf": tf_idf_similarity(dataset, split),
        "fisher": fisher_similarity(list(_training_split(dataset, split).captions["text"]), captions, seed),
        "meteor": meteor_similarity(captions),
    }
    has_objects = (split.labels["task"] == SYNSETS).any()
    return similarities | ({"objects": object_similarity(dataset, split)} if has_objects else {})


def tf_idf_similarity(dataset: Dataset, split: Dataset) -> Similarity:
    """Return the dot product of two images' tf-idf vectors."""
    vectors = image_vectors(fit_tf_idf(dataset, split), split)
    return lambda first, second: float((vectors[first] @ vectors[second].T).sum())


def generated_similarity(path: Path, dataset: Dataset, split: Dataset) -> Similarity:
    """Return the dot product of two images' tf-idf vectors of captions that a network wrote, fitted on people's.

    The CSV file has the columns image_id and text, and a caption of each image of the split.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    missing = [name for name in ("image_id", "text") if name not in table.columns]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(table.columns)}")
    without = split.images["image_id"][~split.images["image_id"].isin(table["image_id"])]
    if len(without):
        raise ValueError(f"{path} has no caption of {len(without)} images of the split, such as {without.iloc[0]!r}")
    captions = table[table["image_id"].isin(split.images["image_id"])]
    vectors = image_vectors(fit_tf_idf(dataset, split), replace(split, captions=captions))
    return lambda first, second: float((vectors[first] @ vectors[second].T).sum())


def fisher_similarity(training: Sequence[str], captions: Mapping[int, Sequence[str]], seed: int) -> Similarity:
    """Return the dot product of two images' Fisher vectors, fitted on the ``training`` captions."""
    from sklearn.preprocessing import normalize  # imported here: scikit-learn takes seconds

    vectorizer = FisherVectors(**FISHER)
    vectorizer.fit(training, seed)
    bags = [np.concatenate(vectorizer.word_vectors.encode(texts).values) for texts in captions.values()]
    vectors = dict(zip(captions, normalize(vectorizer.fisher(bags)), strict=True))
    return lambda first, second: float(vectors[first] @ vectors[second])


def object_similarity(dataset: Dataset, split: Dataset) -> Similarity:
    """Return the dot product of two images' tf-idf histograms of object synsets."""

    from sklearn.feature_extraction import DictVectorizer  # imported here: scikit-learn takes seconds
    from sklearn.feature_extraction.text import TfidfTransformer

    def counts(part: Dataset) -> list[dict[str, float]]:
        labels = part.labels[part.labels["task"] == SYNSETS]
        of_image = {
            name: dict(zip(rows["label"], rows["value"], strict=True)) for name, rows in labels.groupby("image_id")
        }
        return [of_image.get(name, {}) for name in part.images["image_id"]]

    training = dataset.split("train")
    fitted = counts(training if len(training.images) else split)
    histograms, weights = DictVectorizer().fit(fitted), TfidfTransformer()
    weights.fit(histograms.transform(fitted))
    vectors = weights.transform(histograms.transform(counts(split)))
    return lambda first, second: float((vectors[first] @ vectors[second].T).sum())


def meteor_similarity(captions: Mapping[int, Sequence[str]]) -> Similarity:
    """Return the match kernel of METEOR over the captions of two images."""
    sentences = {row: [meteor_sentence(text) for text in texts] for row, texts in captions.items()}

    def scores(first: Sequence[MeteorSentence], second: Sequence[MeteorSentence]) -> list[list[float]]:
        return [[meteor(x, y) for y in second] for x in first]

    return lambda first, second: match_kernel(torch.tensor(scores(sentences[first], sentences[second])))


def _training_split(dataset: Dataset, split: Dataset) -> Dataset:
    training = dataset.split("train")
    return training if len(training.captions) else split
