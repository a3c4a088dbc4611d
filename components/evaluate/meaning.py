"""Images that look for images of the same meaning, measured by captions and by people."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.datasets import Dataset
from bifocal.datasets.formats.human_triplets import read_triplets
from bifocal.metrics import area_under, choose_queries, semantic_curves, triplet_agreement
from bifocal.metrics.ranking.semantic_relevance import caption_vectors, image_vectors, matched_captions, relevance
from bifocal.text.vectorizers import TFIDF, FisherVectors
from bifocal.text.vectorizers.base import FittedVectorizer, Vectorizer
from components.evaluate.measure import Measured
from components.evaluate.modifiers import modifier_figures
from components.evaluate.pointer import embed_texts
from components.evaluate.spec import EvaluateParams

RESULTS = (8, 16, 32, 64, 128)
"""R of NDCG@R and PCC@R, as far as the split has images."""
FISHER: dict[str, Any] = {"dim": 100, "components": 512}
"""Of the Fisher vectors of word2vec that captions are matched by."""


@dataclass(frozen=True)
class Meaning:
    """What was found of a model that embeds single images.

    Attributes:
        figures: of ``metrics.json``: semantic, modifiers, and triplets if there are some.
        curves: columns R, NDCG, PCC; without rows if there are no figures.
    """

    figures: dict[str, Any]
    curves: pd.DataFrame


def measure_meaning(
    params: EvaluateParams, model: Any, measured: Measured, reader: FittedVectorizer, whole: Dataset
) -> Meaning:
    """Measure it on the split of ``params``; nothing of a model without single vectors.

    Raises:
        ValueError: triplets are given, and the model has no vectors that could agree with them.
    """
    if measured.images is None:
        if params.triplets is not None:
            raise ValueError(
                f"evaluate.triplets is {params.triplets}, and a {type(model).__name__} has no vector of an image alone "
                "that could be compared with another: set it to null"
            )
        return Meaning({}, pd.DataFrame(columns=["R", "NDCG", "PCC"]))
    split, images = whole.split(params.split), normalize(measured.images, dim=1)
    figures = {"modifiers": modifier_figures(images, split, partial(embed_texts, model, reader), params.seed)}
    figures["semantic"], curves = semantic_figures(images, whole, split, params.seed)
    if params.triplets is not None:
        figures["triplets"] = triplet_figures(params.triplets, images, whole, split, params.seed)
    return Meaning(figures, curves)


def semantic_figures(images: Tensor, whole: Dataset, split: Dataset, seed: int) -> tuple[dict[str, Any], pd.DataFrame]:
    """NDCG@R and PCC@R in percent against the tf-idf proxy, and the areas under them; the query is no result.

    Args:
        images: embeddings of the images of ``split``, of unit norm.

    Returns:
        figures with what random scores give under ``chance``, and the curves, columns R, NDCG, PCC.
    """
    queries = choose_queries(len(images), seed)
    relevant = relevance(image_vectors(fitted(TFIDF(), whole, split, seed), split), queries)
    rs = [r for r in RESULTS if r < len(images)] or [len(images) - 1]
    random = torch.rand(relevant.shape, generator=torch.Generator().manual_seed(seed))
    curves = [semantic_curves(scores, relevant, queries, rs) for scores in (images[queries] @ images.T, random)]
    (found, chance) = (
        {name: _curve(name, both[place]) for place, name in enumerate(("NDCG", "PCC"))} for both in curves
    )
    table = pd.DataFrame({"R": rs} | {name: [values[f"{name}@{r}"] for r in rs] for name, values in found.items()})
    figures: dict[str, Any] = {**found["NDCG"], **found["PCC"], "chance": {**chance["NDCG"], **chance["PCC"]}}
    return figures | {"queries": len(queries)}, table


def triplet_figures(path: Path, images: Tensor, whole: Dataset, split: Dataset, seed: int) -> dict[str, float]:
    """Agreement in percent with people, of the model and of what the images' captions say by themselves.

    ``tf_idf`` is the proxy; the two ``matched`` compare caption with caption, see ``match_kernel``. Triplets with an
    image that is not of the split are left out and counted.

    Raises:
        ValueError: the file is not as it should be, or no triplet is of the split.
    """
    table = read_triplets(path)
    row = {image_id: place for place, image_id in enumerate(split.images["image_id"])}
    names = ["query", "first", "second"]
    kept = table[table[names].isin(list(row)).all(axis=1)]
    if not len(kept):
        raise ValueError(f"{path}: none of {len(table)} triplets is of three images of the split that is evaluated")
    votes = torch.from_numpy(kept[["o1", "o2", "o3"]].to_numpy())
    places = kept[names].map(lambda image_id: row[image_id]).to_numpy()
    tf_idf = fitted(TFIDF(), whole, split, seed)
    proxy = image_vectors(tf_idf, split)

    def agreement(score: Callable[[int, int], float]) -> float:
        scores = torch.tensor([[score(query, other) for other in others] for query, *others in places.tolist()])
        return triplet_agreement(scores[:, 0], scores[:, 1], votes)

    captions: list[list[int]] = [[] for _ in row]
    for place, image_id in enumerate(split.captions["image_id"]):
        captions[row[image_id]].append(place)

    def matched(vectorizer: Vectorizer) -> float:
        vectors = caption_vectors(vectorizer, list(split.captions["text"]))
        return agreement(lambda query, other: matched_captions(vectors, captions[query], captions[other]))

    return {
        "agreement": agreement(lambda query, other: float(images[query] @ images[other])),
        "tf_idf": agreement(lambda query, other: float((proxy[query] @ proxy[other].T).sum())),
        "tf_idf_matched": matched(tf_idf),
        "fisher_matched": matched(fitted(FisherVectors(**FISHER), whole, split, seed)),
        "triplets": len(kept),
        "left_out": len(table) - len(kept),
    }


def fitted(vectorizer: Vectorizer, whole: Dataset, split: Dataset, seed: int) -> Vectorizer:
    """``vectorizer`` after the training captions; after those of ``split`` where there are none."""
    training = whole.split("train").captions["text"]
    vectorizer.fit(list(training if len(training) else split.captions["text"]), seed)
    return vectorizer


def _curve(name: str, curve: dict[int, float]) -> dict[str, float]:
    return {f"{name}@{r}": 100 * value for r, value in curve.items()} | {f"{name}_area": 100 * area_under(curve)}
