"""Tables that later comparisons of two models need: the rank of every query, and the hashes of the training images."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import pandas as pd
from numpy.typing import ArrayLike

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Result

RANKS = "ranks.parquet"
TRAINING_IMAGES = "trained_on.parquet"


def query_ranks(
    direction: str, query: Iterable[object], image_id: Iterable[object], content: Iterable[str], rank: ArrayLike
) -> pd.DataFrame:
    """Return per-query ranks as a table with the columns of ``ranks.parquet``.

    Args:
        direction: task, such as ``"image_retrieval"``.
        query: id of each query: image, caption or phrase id.
        image_id: image of each query; the bootstrap resamples images.
        content: SHA-256 of each query's image file or text; two models are compared on queries of equal content.
        rank: expected rank of the first correct answer, from 0; for a hit or miss 0 or 1.
    """
    columns = {"query": map(str, query), "image_id": map(str, image_id), "content": map(str, content)}
    table = pd.DataFrame({"direction": direction} | {name: list(values) for name, values in columns.items()})
    return table.assign(rank=pd.Series(rank, dtype="float64"))


def text_hashes(texts: Iterable[object]) -> list[str]:
    """Return the SHA-256 of each text."""
    return [sha256(str(text).encode()).hexdigest() for text in texts]


def write_rank_tables(directory: Path, results: Sequence[Result], dataset: Dataset, split: str) -> None:
    """Write ``ranks.parquet`` and ``trained_on.parquet``.

    The first joins the queries of all results. The second holds the SHA-256 of every image file outside ``split``.
    """
    tables = [result.queries for result in results if result.queries is not None]
    ranks = pd.concat(tables, ignore_index=True) if tables else query_ranks("", [], [], [], [])
    ranks.to_parquet(directory / RANKS, index=False)
    hashes = dataset.images.loc[dataset.images["split"] != split, "sha256"].dropna().astype(str)
    content = sorted(set(hashes) - {""})
    pd.DataFrame({"content": content}, dtype=str).to_parquet(directory / TRAINING_IMAGES, index=False)
