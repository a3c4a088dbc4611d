"""Agreement of image similarities with people who judged triplets of images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.datasets.base import SYNSETS
from bifocal.datasets.formats.files import check_columns
from bifocal.metrics import inter_user_agreement, match_kernel, triplet_agreement
from bifocal.metrics.ranking.meteor import MeteorSentence, meteor, meteor_sentence
from bifocal.metrics.ranking.semantic_relevance import image_vectors
from bifocal.report.sections import MetricRow
from bifocal.text.vectorizers import TFIDF, FisherVectors
from bifocal.text.vectorizers.base import training_documents

FISHER: dict[str, Any] = {"dim": 100, "mixture": "gmm", "components": 1, "pca_captions": 1000}
"""Fisher vectors of word2vec; they are compared before PCA, so PCA is small."""

Similarity = Callable[[int, int], float]
"""Similarity of two images of a split, by their rows."""
TRIPLET = ("query", "first", "second")
VOTES = ("o1", "o2", "o3")
CHOICES = ("first", "second", "neither")
RANDOM_DRAWS = 5
"""Draws of random scores, as "Random (x5)" of tables 1 and 2."""
NEIGHBORS = 50
LABELS = {
    "agreement": "Model",
    "with_text": "Model, image and text",
    "tf_idf": "Captions, tf-idf",
    "fisher": "Captions, Fisher vectors of word vectors",
    "meteor": "Captions, METEOR",
    "objects": "Objects, tf-idf of synsets",
    "generated": "Generated captions, tf-idf",
    "random": "Random scores",
    "people": "People with each other",
}


def fit_tf_idf(dataset: Dataset, split: Dataset) -> TFIDF:
    """Return tf-idf of all words of an image, fitted on train, else on ``split``."""
    vectorizer = TFIDF(documents="images")
    captions = _training_split(dataset, split).captions
    vectorizer.fit(
        training_documents(vectorizer, captions["image_id"].tolist(), captions["text"].tolist()),
        seed=0,
    )
    return vectorizer


def caption_similarities(
    dataset: Dataset, split: Dataset, images: Sequence[int], seed: int
) -> Mapping[str, Similarity]:
    """Return the similarities of table 1: ``tf_idf``, ``fisher`` and ``meteor`` of captions, and
    ``objects``.

    Gordo and Larlus, CVPR 2017, section 4. For tf-idf and Fisher vectors, which are fitted on
    training captions, all words of an image are one bag; METEOR compares single captions, with
    ``bifocal.metrics.match_kernel``. ``objects`` needs the labels "synsets", which ``VisualGenome``
    reads with ``objects``. ``images`` are the compared rows.
    """
    captions: dict[int, list[str]] = {row: [] for row in sorted(set(images))}
    rows = split.image_rows(split.captions["image_id"])
    for row, text in zip(rows, split.captions["text"], strict=True):
        if row in captions:
            captions[row].append(text)
    similarities = {
        "tf_idf": tf_idf_similarity(dataset, split),
        "fisher": fisher_similarity(
            list(_training_split(dataset, split).captions["text"]), captions, seed
        ),
        "meteor": meteor_similarity(captions),
    }
    has_objects = (split.labels["task"] == SYNSETS).any()
    return similarities | ({"objects": object_similarity(dataset, split)} if has_objects else {})


def tf_idf_similarity(dataset: Dataset, split: Dataset) -> Similarity:
    """Return the dot product of two images' tf-idf vectors."""
    return _dot_product(image_vectors(fit_tf_idf(dataset, split), split))


def generated_similarity(path: Path, dataset: Dataset, split: Dataset) -> Similarity:
    """Return the dot product of two images' tf-idf vectors of captions that a network wrote, fitted
    on people's.

    The CSV file has the columns image_id and text, and a caption of each image of the split.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    check_columns(path, table.columns, ("image_id", "text"))
    without = split.images["image_id"][~split.images["image_id"].isin(table["image_id"])]
    if len(without):
        raise ValueError(
            f"{path} has no caption of {len(without)} images of the split, such as "
            f"{without.iloc[0]!r}"
        )
    captions = table[table["image_id"].isin(split.images["image_id"])]
    return _dot_product(
        image_vectors(fit_tf_idf(dataset, split), replace(split, captions=captions))
    )


def fisher_similarity(
    training: Sequence[str], captions: Mapping[int, Sequence[str]], seed: int
) -> Similarity:
    """Return the dot product of two images' Fisher vectors, fitted on the ``training`` captions."""
    from sklearn.preprocessing import normalize  # imported here: scikit-learn takes seconds

    vectorizer = FisherVectors(**FISHER)
    vectorizer.fit(training, seed)
    bags = [
        np.concatenate(vectorizer.word_vectors.vocabulary.encode_captions(texts).values)
        for texts in captions.values()
    ]
    vectors = dict(zip(captions, normalize(vectorizer.fisher(bags)), strict=True))
    return lambda first, second: float(vectors[first] @ vectors[second])


def object_similarity(dataset: Dataset, split: Dataset) -> Similarity:
    """Return the dot product of two images' tf-idf histograms of object synsets."""

    from sklearn.feature_extraction import (
        DictVectorizer,
    )  # imported here: scikit-learn takes seconds
    from sklearn.feature_extraction.text import TfidfTransformer

    def counts(part: Dataset) -> list[dict[str, float]]:
        labels = part.labels[part.labels["task"] == SYNSETS]
        of_image = {
            name: dict(zip(rows["label"], rows["value"], strict=True))
            for name, rows in labels.groupby("image_id")
        }
        return [of_image.get(name, {}) for name in part.images["image_id"]]

    training = dataset.split("train")
    fitted = counts(training if len(training.images) else split)
    histograms, weights = DictVectorizer().fit(fitted), TfidfTransformer()
    weights.fit(histograms.transform(fitted))
    return _dot_product(weights.transform(histograms.transform(counts(split))))


def _dot_product(vectors: Any) -> Similarity:
    return lambda first, second: float((vectors[first] @ vectors[second].T).sum())


def meteor_similarity(captions: Mapping[int, Sequence[str]]) -> Similarity:
    """Return the match kernel of METEOR over the captions of two images."""
    sentences = {row: [meteor_sentence(text) for text in texts] for row, texts in captions.items()}

    def scores(
        first: Sequence[MeteorSentence], second: Sequence[MeteorSentence]
    ) -> list[list[float]]:
        return [[meteor(x, y) for y in second] for x in first]

    return lambda first, second: match_kernel(
        torch.tensor(scores(sentences[first], sentences[second]))
    )


def _training_split(dataset: Dataset, split: Dataset) -> Dataset:
    training = dataset.split("train")
    return training if len(training.captions) else split


def read_triplets(path: Path) -> pd.DataFrame:
    """Read votes: image ids ``query``, ``first``, ``second``, and counts ``o1``, ``o2``, ``o3``
    (neither)."""
    decisions = read_decisions(path)
    if decisions is not None:
        chosen = (
            pd.get_dummies(decisions["choice"])
            .reindex(columns=list(CHOICES), fill_value=False)
            .astype(int)
        )
        votes = decisions[list(TRIPLET)].join(chosen.set_axis(list(VOTES), axis=1))
        return votes.groupby(list(TRIPLET), sort=False, as_index=False).sum()
    table = _read_csv(path)
    check_columns(path, table.columns, (*TRIPLET, *VOTES))
    for name in VOTES:
        invalid = ~table[name].str.fullmatch(r"\d+")
        _check_values(path, table[name], invalid, "an integer of at least 0")
    return table[[*TRIPLET, *VOTES]].astype({name: int for name in VOTES})


def read_decisions(path: Path) -> pd.DataFrame | None:
    """Read single decisions: ``query``, ``first``, ``second``, ``user``, ``choice``; None without a
    column ``user``."""
    table = _read_csv(path)
    if "user" not in table.columns:
        return None
    check_columns(path, table.columns, (*TRIPLET, "user", "choice"))
    _check_values(
        path, table["choice"], ~table["choice"].isin(CHOICES), f"one of {', '.join(CHOICES)}"
    )
    _check_values(
        path,
        table["user"],
        table.duplicated([*TRIPLET, "user"]),
        "one decision of a user on a triplet",
    )
    return table[[*TRIPLET, "user", "choice"]]


def _read_csv(path: Path) -> pd.DataFrame:
    if not path.is_file():
        columns = ", ".join((*TRIPLET, *VOTES))
        raise ValueError(
            f"{path}: no such file; expected a CSV with the columns {columns}, or with user "
            "and choice"
        )
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _check_values(
    path: Path, column: "pd.Series[str]", invalid: "pd.Series[bool]", expected: str
) -> None:
    if invalid.any():
        row = int(invalid.to_numpy().argmax())
        raise ValueError(
            f"{path}, line {row + 2}, column {column.name}: {column.iloc[row]!r}, expected "
            f"{expected}"
        )


def triplet_metrics(
    path: Path,
    images: Tensor,
    dataset: Dataset,
    split: Dataset,
    seed: int,
    with_text: Tensor | None = None,
    generated: Path | None = None,
) -> dict[str, float]:
    """Return the agreement with people in percent, of the model and of caption similarities;
    ``left_out`` counts triplets outside the split, ``people`` is one person's agreement with the
    others. Embeddings have unit norm; ``generated`` is a file of captions that a network wrote.
    """
    row_of_image = {image_id: row for row, image_id in enumerate(split.images["image_id"])}
    table = read_triplets(path)
    kept = _in_split(table, row_of_image)
    if not len(kept):
        raise ValueError(
            f"{path}: none of {len(table)} triplets has all of its images in the evaluated split"
        )
    votes = torch.tensor(kept[list(VOTES)].to_numpy())
    rows = kept[list(TRIPLET)].map(lambda image_id: row_of_image[image_id]).to_numpy()

    def agreement(similarity: Callable[[int, int], float]) -> float:
        scores = [
            [similarity(query, other) for other in others] for query, *others in rows.tolist()
        ]
        first, second = torch.tensor(scores, dtype=torch.float64).T
        return triplet_agreement(first, second, votes)

    metrics = {"agreement": agreement(lambda query, other: float(images[query] @ images[other]))}
    if with_text is not None:
        metrics["with_text"] = agreement(
            lambda query, other: float(with_text[query] @ images[other])
        )
    similarities = caption_similarities(dataset, split, rows.flatten().tolist(), seed)
    if generated is not None:
        similarities = {
            **similarities,
            "generated": generated_similarity(generated, dataset, split),
        }
    metrics |= {name: agreement(similarity) for name, similarity in similarities.items()}
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(RANDOM_DRAWS, 2, len(votes), generator=generator)
    draws = [triplet_agreement(first, second, votes) for first, second in scores]
    metrics |= {"random": mean(draws), "random_std": pstdev(draws)}
    decisions = read_decisions(path)
    if decisions is not None:
        metrics["people"], metrics["people_std"] = inter_user_agreement(
            *_numbers(_in_split(decisions, row_of_image))
        )
    return metrics | {"triplets": len(kept), "left_out": len(table) - len(kept)}


def draw_triplets(images: Tensor, split: Dataset, count: int, seed: int) -> pd.DataFrame:
    """Return ``count`` triplets to ask people about, as image ids: query, first, second.

    Gordo and Larlus, section 3: two images are drawn from the 50 nearest neighbors of a random
    query, because two random images would both be irrelevant. The paper takes ResNet-101's mean
    cell, without training; here ``images`` (N, d) are embeddings of unit norm. Queries are drawn
    without replacement.

    Raises:
        ValueError: the split has fewer than ``count`` images, or fewer than three.
    """
    if count > len(images) or len(images) < 3:
        raise ValueError(
            f"{count} triplets of {len(images)} images: each needs a query of its own, and two "
            "others"
        )
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randperm(len(images), generator=generator)[:count]
    rows = torch.arange(count)
    cosines = (images[queries] @ images.T).index_put(
        (rows, queries), torch.tensor(-torch.inf, dtype=images.dtype)
    )
    near = cosines.topk(min(NEIGHBORS, len(images) - 1), dim=1).indices
    chosen = torch.stack([torch.randperm(near.shape[1], generator=generator)[:2] for _ in rows])
    triplets = torch.cat([queries.unsqueeze(1), near.gather(1, chosen)], dim=1)
    return pd.DataFrame(
        split.images["image_id"].to_numpy()[triplets.numpy()], columns=list(TRIPLET)
    )


def triplet_rows(metrics: Mapping[str, float]) -> list[MetricRow]:
    """Return the agreements as scalars."""
    return [
        MetricRow(f"triplets.{name}", metrics[name], label)
        for name, label in LABELS.items()
        if name in metrics
    ]


def _in_split(table: pd.DataFrame, row_of_image: Mapping[str, int]) -> pd.DataFrame:
    return table[table[list(TRIPLET)].isin(list(row_of_image)).all(axis=1)]


def _numbers(decisions: pd.DataFrame) -> tuple[Tensor, Tensor, Tensor]:
    """Return the numbers of triplet, user and choice for each decision."""
    columns = (
        decisions.groupby(list(TRIPLET)).ngroup(),
        decisions.groupby("user").ngroup(),
        decisions["choice"].map(CHOICES.index),
    )
    triplet, user, choice = (torch.tensor(column.to_numpy(dtype="int64")) for column in columns)
    return triplet, user, choice
