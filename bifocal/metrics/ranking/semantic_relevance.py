"""What images mean by what people said of them: the proxy that semantic retrieval is measured against.

Gordo and Larlus, "Beyond instance-level image retrieval: leveraging captions to learn a global visual representation
for semantic retrieval", CVPR 2017, section 4.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.preprocessing import normalize
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.metrics import match_kernel
from bifocal.text.vectorizers.base import Vectorizer


def caption_vectors(vectorizer: Vectorizer, captions: Sequence[str]) -> csr_matrix:
    """Each caption's vector, of unit norm or zero: (M, K).

    Args:
        vectorizer: fitted, of one vector for each caption, such as ``TFIDF`` or ``FisherVectors``.
    """
    rows = vectorizer.transform(captions)
    if rows.indices is None:
        return csr_matrix(normalize(np.stack(rows.values)))
    ends = np.cumsum([0, *(len(row) for row in rows.values)])
    values, places = np.concatenate(rows.values), np.concatenate(rows.indices)
    return csr_matrix(normalize(csr_matrix((values, places, ends), (len(captions), vectorizer.format.dim))))


def image_vectors(vectorizer: Vectorizer, dataset: Dataset) -> csr_matrix:
    """Each image's captions together, in the order of its images: the sum of their vectors, of unit norm, (N, K)."""
    row = {image_id: place for place, image_id in enumerate(dataset.images["image_id"])}
    image = [row[image_id] for image_id in dataset.captions["image_id"]]
    members = csr_matrix((np.ones(len(image)), (image, np.arange(len(image)))), (len(row), len(image)))
    return csr_matrix(normalize(members @ caption_vectors(vectorizer, list(dataset.captions["text"]))))


def relevance(vectors: csr_matrix, queries: Tensor) -> Tensor:
    """How much all images mean the same as each query: (Q, N) float64, at least 0."""
    found = (vectors[queries.numpy()] @ vectors.T).toarray()
    return torch.from_numpy(found).double().clamp_min(0)


def matched_captions(vectors: csr_matrix, first: Sequence[int], second: Sequence[int]) -> float:
    """``match_kernel`` of two images by the rows of their captions."""
    return match_kernel(torch.from_numpy((vectors[first] @ vectors[second].T).toarray()))
