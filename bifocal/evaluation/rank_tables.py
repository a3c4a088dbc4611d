"""Tables for a later comparison of two models: ranks of all queries, evaluated images, training
images."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import pandas as pd
from numpy.typing import ArrayLike

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Result
from bifocal.features import FeatureStore

RANKS = "ranks.parquet"
TRAINING_IMAGES = "trained_on.parquet"
EVALUATED_IMAGES = "evaluated_on.parquet"
ZERO_SHOT = "zero_shot."
"""Prefix of the directions of the contrastive model below a model's heads."""


def query_ranks(
    direction: str,
    query: Iterable[object],
    image_id: Iterable[object],
    content: Iterable[str],
    protocol: Iterable[str],
    rank: ArrayLike,
) -> pd.DataFrame:
    """Return per-query ranks, from 0, as a table with the columns of ``ranks.parquet``.

    ``content`` is the SHA-256 of each query's image file or text: two models are compared on
    queries of equal content. ``protocol`` is the hash of everything else that a rank depends on,
    such as the candidates: ranks under different protocols are not comparable. The bootstrap
    resamples images, so each query has an ``image_id``.
    """
    columns = {"query": query, "image_id": image_id, "content": content, "protocol": protocol}
    table = pd.DataFrame(
        {"direction": direction}
        | {name: list(map(str, values)) for name, values in columns.items()}
    )
    return table.assign(rank=pd.Series(rank, dtype="float64"))


def text_hashes(texts: Iterable[object]) -> list[str]:
    """Return the SHA-256 of each text."""
    return [sha256(str(text).encode()).hexdigest() for text in texts]


def pool_hash(contents: Iterable[str]) -> str:
    """Return the hash of candidates that are ranked together, in any order."""
    return sha256("\n".join(sorted(contents)).encode()).hexdigest()


def write_rank_tables(
    directory: Path, results: Sequence[Result], dataset: Dataset, split: str, features: FeatureStore
) -> None:
    """Write ``ranks.parquet`` (queries of all results), ``trained_on.parquet`` (SHA-256 of image
    files outside ``split``) and ``evaluated_on.parquet`` (image_id and SHA-256 of file and features
    of the images of ``split``).
    """
    tables = [result.queries for result in results if result.queries is not None]
    ranks = pd.concat(tables, ignore_index=True) if tables else query_ranks("", [], [], [], [], [])
    ranks.to_parquet(directory / RANKS, index=False)
    content = sorted(training_hashes(dataset, split))
    pd.DataFrame({"content": content}, dtype=str).to_parquet(
        directory / TRAINING_IMAGES, index=False
    )
    evaluated = evaluated_images(dataset.split(split).images, features)
    evaluated.to_parquet(directory / EVALUATED_IMAGES, index=False)


def training_hashes(dataset: Dataset, split: str = "test") -> frozenset[str]:
    """Return the SHA-256 of every image file outside ``split``, as in ``trained_on.parquet``."""
    hashes = dataset.images.loc[dataset.images["split"] != split, "sha256"].dropna().astype(str)
    return frozenset(hashes) - {""}


def evaluated_images(images: pd.DataFrame, features: FeatureStore) -> pd.DataFrame:
    """Return ids and hashes of ``images``, as in ``evaluated_on.parquet``."""
    columns = {
        "image_id": images["image_id"].tolist(),
        "content": images["sha256"].fillna("").tolist(),
        "features": [_features_hash(features, row) for row in features.rows(images["image_id"])],
    }
    return pd.DataFrame(columns, dtype=str)


def _features_hash(features: FeatureStore, row: int) -> str:
    regions = features.gather([row])
    values = regions.features.movedim(1, -1) if features.pixels else regions.features
    # Without the padding, which depends on the other images of the store.
    return sha256(values[regions.mask].numpy().tobytes()).hexdigest()
