"""Relevance of items to a sentence, judged by their captions."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.draws import drawn_rows
from bifocal.search.index.index import SearchIndex

SAMPLE = 2000
"""Captions whose similarity to the other captions of their item is measured."""
SHARE = 0.5
"""Share of the captions that reach the level with another caption of their own item."""
NEAR = 0.05
"""Cosine of tf-idf vectors from which a caption comes near a sentence: they share at least one
uncommon word."""
CAPTIONS = 5
"""Captions that tell what an image shows; a similar image takes the place of two that are missing.
Chosen by written queries on 300 to 3,000 photographs with one caption and with five.
"""
CLUSTER = 5000
"""Items of a cluster, in which the images most similar to an item are searched: all pairs would be
quadratic."""
BATCH = 64


def relevant_rows(
    items: pa.Table, sentences: Sequence[str], own: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Return the rows of the items that each sentence describes: its own item, and items with a
    caption at least as similar (cosine of tf-idf vectors) as the median caption is to the closest
    one of its own item. Tf-idf agrees best with people: Gordo and Larlus, CVPR 2017, table 1.
    """
    return list(_rows(items, sentences, own, None))


def near_rows(
    index: SearchIndex, sentences: Sequence[str], own: Sequence[int]
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of the items that come near each sentence: its own item, and items with a
    caption whose cosine of tf-idf vectors is at least ``NEAR``. Without them, the sentence names
    something that the collection lacks.

    A single caption leaves out most of what its image shows. So with c < ``CAPTIONS`` captions per
    item, each of these items adds the (``CAPTIONS`` - c) // 2 items with the most similar images.
    """
    similar = _similar_rows(index)
    for rows in _rows(index.items, sentences, own, NEAR):
        yield rows if similar is None else np.union1d(rows, similar[rows])


def _similar_rows(index: SearchIndex) -> NDArray[np.int64] | None:
    """Return the rows (N, n) of each item and of the items most similar to it; None with enough
    captions, or none."""
    if "captions" not in index.items.column_names:
        return None
    captions = index.items["captions"].combine_chunks()
    counts, live = np.diff(captions.offsets.to_numpy()), np.flatnonzero(~index.removed)
    count = (CAPTIONS - round(counts[counts > 0].mean())) // 2 if counts.any() else 0
    if count <= 0:
        return None
    similar = np.arange(len(index.ids))[:, None].repeat(min(count + 1, len(live)), axis=1)
    for rows in _clusters(index, live):
        vectors = np.asarray(index.vectors[rows], np.float32)
        width = min(similar.shape[1], len(rows))
        for start in range(0, len(rows), BATCH):
            scores = vectors[start : start + BATCH] @ vectors.T
            similar[rows[start : start + BATCH], :width] = rows[
                np.argpartition(-scores, width - 1)[:, :width]
            ]
    return similar


def _clusters(index: SearchIndex, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows as one cluster, or as k-means clusters of about ``CLUSTER`` rows."""
    count = len(rows) // CLUSTER
    if count < 2:
        return [rows]
    from sklearn.cluster import MiniBatchKMeans  # imported here: scikit-learn takes seconds

    drawn = np.sort(np.random.default_rng(0).permutation(rows)[: 2 * CLUSTER])
    kmeans = MiniBatchKMeans(count, random_state=0, n_init=1).fit(
        np.asarray(index.vectors[drawn], np.float32)
    )
    blocks = [rows[start : start + CLUSTER] for start in range(0, len(rows), CLUSTER)]
    labels = np.concatenate(
        [kmeans.predict(np.asarray(index.vectors[block], np.float32)) for block in blocks]
    )
    return [rows[labels == label] for label in np.unique(labels)]


def _rows(
    items: pa.Table, sentences: Sequence[str], own: Sequence[int], level: float | None
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows whose captions reach a similarity; None for the median of two captions of one
    item."""
    only = [np.array([row], dtype=np.int64) for row in own]
    if "captions" not in items.column_names or not sentences:
        yield from only
        return
    captions = items["captions"].combine_chunks()
    row_of = np.repeat(
        np.arange(len(items)), np.diff(captions.offsets.to_numpy()) if len(items) else 0
    )
    texts = captions.flatten().to_pylist()
    try:
        vectorizer, known = _tf_idf(texts)
    except ValueError:  # no caption has a word
        yield from only
        return
    level = _level(texts, known, row_of) if level is None else level
    for start in range(0, len(sentences), BATCH):
        similar = (vectorizer.transform(sentences[start : start + BATCH]) @ known.T).tocsr()
        for number, row in enumerate(only[start : start + BATCH]):
            part = slice(similar.indptr[number], similar.indptr[number + 1])
            fitting = row_of[similar.indices[part][similar.data[part] >= level]]
            yield np.union1d(row, fitting)


def _tf_idf(texts: Sequence[str]) -> tuple[Any, Any]:
    """Return a fitted vectorizer and the unit vectors (C, words) of C texts, sparse."""
    # Imported here: scikit-learn takes seconds.
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True)
    return vectorizer, vectorizer.fit_transform(texts)


def _level(texts: Sequence[str], known: Any, row_of: NDArray[np.int64]) -> float:
    """Return the median similarity of a caption to the most similar other one of its item; infinite
    without any."""
    sizes = np.bincount(row_of)
    several = np.flatnonzero(sizes[row_of] > 1)
    chosen = several[drawn_rows((texts[caption] for caption in several.tolist()), SAMPLE, 0)]
    if not len(chosen):
        return np.inf
    starts = np.concatenate([[0], np.cumsum(sizes)])  # the captions of an item follow each other
    similarities = []
    for caption in chosen:
        first, last = starts[row_of[caption]], starts[row_of[caption] + 1]
        products = (known[first:last] @ known[caption].T).toarray().ravel()
        similarities.append(np.delete(products, caption - first).max())
    return float(np.quantile(similarities, 1 - SHARE))
