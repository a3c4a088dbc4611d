"""Blocks of dependent images, which the test of images permutes as one: a day of an album, or an
album."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bifocal.datasets.base import META
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import DATE, FOLDER

Labels = NDArray[np.int64]
ALBUM = "album"
LEVEL, PERMUTATIONS = 0.05, 199
"""P-value up to which the parts of a group count as dependent, and the permutations of the test."""


def image_groups(collection: Collection, rows: Sequence[int]) -> Labels:
    """Return the day and the album of images (n, 2), as numbers.

    An album is a value of the metadata ``album``, else of ``folder``, else the folder in the item's
    id. A day is a part of an album, and needs the metadata ``date``.
    """
    folders = [str(PurePosixPath(collection.ids[row]).parent) for row in rows]
    albums, dates = _values(collection, rows, (ALBUM, FOLDER)), _values(collection, rows, (DATE,))
    table = pd.DataFrame(
        {
            "album": [
                folder if album is None else str(album)
                for folder, album in zip(folders, albums, strict=True)
            ],
            "day": [str(moment)[:10] for moment in dates],
        }
    )
    levels = [table.groupby(names, sort=False).ngroup() for names in (["album", "day"], ["album"])]
    return np.stack([level.to_numpy(np.int64) for level in levels], axis=1)


def _values(collection: Collection, rows: Sequence[int], names: Sequence[str]) -> list[Any]:
    for name in names:
        if META + name in collection.items.column_names:
            values: list[Any] = (
                collection.items.column(META + name).take(pa.array(rows, pa.int64())).to_pylist()
            )
            return values
    return [None] * len(rows)


def image_blocks(samples: Sequence[NDArray[Any]], groups: Sequence[Labels | None]) -> list[Labels]:
    """Return the number of each vector's block, for each sample of vectors (n, D).

    Each vector is a block. The blocks become days, and then albums, if parts of one group are more
    similar than parts of others: the sum of their dot products, centered in each sample, against
    permutations of the parts. So a folder that says nothing about its images, or holds all of them,
    makes no block. Without ``groups`` (n, 2), each vector stays a block.
    """
    centered = [np.asarray(sample, np.float64) - np.mean(sample, axis=0) for sample in samples]
    blocks: list[Labels] = [np.arange(len(sample)) for sample in samples]
    for level in range(2):
        coarse = [
            now if levels is None else levels[:, level]
            for now, levels in zip(blocks, groups, strict=True)
        ]
        merged = any(
            len(np.unique(x)) < len(np.unique(now)) for x, now in zip(coarse, blocks, strict=True)
        )
        if merged and _dependence(centered, blocks, coarse) <= LEVEL:
            blocks = coarse
    return blocks


def _dependence(
    samples: Sequence[NDArray[Any]], blocks: Sequence[Labels], coarse: Sequence[Labels]
) -> float:
    """Return the p-value of the hypothesis that blocks of one coarse group are as independent as
    others."""
    random = np.random.default_rng(0)
    parts = []
    for vectors, fine, label in zip(samples, blocks, coarse, strict=True):
        _, first, member = np.unique(fine, return_index=True, return_inverse=True)
        means = averaging(member) @ vectors
        parts.append((means, np.unique(label[first], return_inverse=True)[1]))
    observed = sum(_within(means, label) for means, label in parts)
    drawn = [
        sum(_within(means, random.permutation(label)) for means, label in parts)
        for _ in range(PERMUTATIONS)
    ]
    # A permutation that changes nothing is as large as the observed sum, up to rounding.
    scale = sum(float((means**2).sum()) for means, _ in parts)
    return (1 + sum(value >= observed - 1e-9 * scale for value in drawn)) / (PERMUTATIONS + 1)


def _within(means: NDArray[Any], label: Labels) -> float:
    sums = csr_array((np.ones(len(label)), (label, np.arange(len(label))))) @ means
    return float((sums**2).sum())


def averaging(member: Labels, largest: int | None = None) -> csr_array:
    """Return the matrix (blocks, n) that averages the members of each block 0, 1 ..., at most
    ``largest`` of them."""
    shuffled = np.random.default_rng(0).permutation(len(member))
    if largest is not None:
        shuffled = shuffled[
            pd.Series(member[shuffled]).groupby(member[shuffled]).cumcount() < largest
        ]
    values = 1.0 / np.bincount(member[shuffled])[member[shuffled]]
    return csr_array(
        (values, (member[shuffled], shuffled)), shape=(int(member.max()) + 1, len(member))
    )
