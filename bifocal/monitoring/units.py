"""Units of a test: groups of dependent images, such as a burst, the photographs of a day, or an album."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import DATE, FOLDER, META

Labels = NDArray[np.int64]
ALBUM = "album"
LEVELS = 3
"""Bursts, days of an album, albums; each one is a part of the next one."""
BATCH = 10_000
"""Vectors that are read at once."""
SIMILAR = 0.95
"""Cosine of photographs that follow each other in a burst."""
LEVEL, PERMUTATIONS = 0.05, 199
"""P-value up to which the parts of a group count as dependent, and the permutations of the test."""


def image_groups(collection: Collection, rows: Sequence[int]) -> Labels:
    """Return the burst, the day and the album of images (n, 3), as numbers.

    An album is a value of the metadata ``album``, else of ``folder``, else the folder in the item's id. A day needs the
    metadata ``date``. A burst is a series of similar images of a day, in the order of their dates and ids.
    """
    albums, dates = _values(collection, rows, (ALBUM, FOLDER)), _values(collection, rows, (DATE,))
    ids = [collection.ids[row] for row in rows]
    names = [album_of(item) if album is None else str(album) for item, album in zip(ids, albums, strict=True)]
    days = [(name, str(date)[:10]) for name, date in zip(names, dates, strict=True)]
    order = sorted(range(len(ids)), key=lambda position: (days[position], str(dates[position]), ids[position]))
    groups = np.zeros((len(ids), LEVELS), np.int64)
    groups[:, 1], groups[:, 2] = _numbers(days), _numbers(names)
    if order:
        day, ordered = groups[order, 1], np.array(rows, np.int64)[order]
        starts = np.append(True, day[1:] != day[:-1])
        for begin in range(1, len(order), BATCH):
            vectors = np.asarray(collection.vectors[ordered[begin - 1 : begin + BATCH]], np.float32)
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            starts[begin : begin + BATCH] |= (vectors[1:] * vectors[:-1]).sum(axis=1) < SIMILAR
        groups[order, 0] = np.cumsum(starts)
    return groups


def album_of(item_id: str) -> str:
    """Return the folder in an item's id."""
    return str(PurePosixPath(item_id).parent)


def dependent_units(samples: Sequence[NDArray[Any]], groups: Sequence[Labels | None]) -> list[Labels]:
    """Return the number of each vector's unit, for each sample of vectors (n, D).

    The units are bursts. They become days, and then albums, if parts of one group are more similar than parts of
    others: the sum of their dot products, centered in each sample, against permutations of the parts. So a folder that
    says nothing about its images, or holds all of them, makes no unit. Without ``groups``, each vector is a unit.
    """
    centered = [np.asarray(sample, np.float64) - np.mean(sample, axis=0) for sample in samples]
    units = [np.arange(len(x)) if levels is None else levels[:, 0] for x, levels in zip(samples, groups, strict=True)]
    for level in range(1, LEVELS):
        coarse = [now if levels is None else levels[:, level] for now, levels in zip(units, groups, strict=True)]
        merged = any(len(np.unique(x)) < len(np.unique(now)) for x, now in zip(coarse, units, strict=True))
        if merged and _dependence(centered, units, coarse) <= LEVEL:
            units = coarse
    return units


def _dependence(samples: Sequence[NDArray[Any]], units: Sequence[Labels], coarse: Sequence[Labels]) -> float:
    """Return the p-value of the hypothesis that units of one coarse group are as independent as others."""
    random = np.random.default_rng(0)
    parts = []
    for vectors, fine, label in zip(samples, units, coarse, strict=True):
        _, first, member = np.unique(fine, return_index=True, return_inverse=True)
        means = averaging(member) @ vectors
        parts.append((means, np.unique(label[first], return_inverse=True)[1]))
    observed = sum(_within(means, label) for means, label in parts)
    drawn = [sum(_within(means, random.permutation(label)) for means, label in parts) for _ in range(PERMUTATIONS)]
    # A permutation that changes nothing is as large as the observed sum, up to rounding.
    scale = sum(float((means**2).sum()) for means, _ in parts)
    return (1 + sum(value >= observed - 1e-9 * scale for value in drawn)) / (PERMUTATIONS + 1)


def _within(means: NDArray[Any], label: Labels) -> float:
    sums = csr_array((np.ones(len(label)), (label, np.arange(len(label))))) @ means
    return float((sums**2).sum())


def averaging(member: Labels, largest: int | None = None) -> csr_array:
    """Return the matrix (units, n) that averages the members of each unit 0, 1 ..., at most ``largest`` of them."""
    shuffled = np.random.default_rng(0).permutation(len(member))
    if largest is not None:
        shuffled = shuffled[pd.Series(member[shuffled]).groupby(member[shuffled]).cumcount() < largest]
    values = 1.0 / np.bincount(member[shuffled])[member[shuffled]]
    return csr_array((values, (member[shuffled], shuffled)), shape=(int(member.max()) + 1, len(member)))


def design_effect(hits: NDArray[Any], totals: NDArray[Any]) -> float:
    """Return how many times as large the variance of a share is as with independent entries, at least 1.

    Rao and Scott, "A simple method for the analysis of clustered binary data", Biometrics 1992, section 2: the variance
    of the ratio of ``hits`` to ``totals`` of independent groups, divided by the binomial variance.
    """
    total, count = float(totals.sum()), len(totals)
    share = float(hits.sum()) / total if total else 0.0
    if count < 2 or not 0 < share < 1:
        return 1.0
    variance = count / (count - 1) * float(((hits - share * totals) ** 2).sum()) / total**2
    return max(1.0, variance * total / (share * (1 - share)))


def _values(collection: Collection, rows: Sequence[int], names: Sequence[str]) -> list[Any]:
    for name in names:
        if META + name in collection.items.column_names:
            values: list[Any] = collection.items.column(META + name).take(pa.array(rows, pa.int64())).to_pylist()
            return values
    return [None] * len(rows)


def _numbers(values: Sequence[Any]) -> list[int]:
    known: dict[Any, int] = {}
    return [known.setdefault(value, len(known)) for value in values]
