"""Ground-truth relevance for semantic retrieval: tf-idf similarity of the images' captions.

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
    """Return one vector per caption, of unit norm or zero: (M, K).

    Args:
        vectorizer: fitted, of one vector per caption, such as ``TFIDF`` or ``FisherVectors``.
    """
    rows = vectorizer.transform(captions)
    if rows.indices is None:
        return csr_matrix(normalize(np.stack(rows.values)))
    ends = np.cumsum([0, *(len(row) for row in rows.values)])
    values, columns = np.concatenate(rows.values), np.concatenate(rows.indices)
    return csr_matrix(normalize(csr_matrix((values, columns, ends), (len(captions), vectorizer.format.dim))))


def image_vectors(vectorizer: Vectorizer, dataset: Dataset) -> csr_matrix:
    """Return the sum of the vectors of each image's captions, of unit norm: (N, K) in the order of the images."""
    row_of_image = {image_id: row for row, image_id in enumerate(dataset.images["image_id"])}
    image = [row_of_image[image_id] for image_id in dataset.captions["image_id"]]
    members = csr_matrix((np.ones(len(image)), (image, np.arange(len(image)))), (len(row_of_image), len(image)))
    return csr_matrix(normalize(members @ caption_vectors(vectorizer, list(dataset.captions["text"]))))


def relevance(vectors: csr_matrix, queries: Tensor) -> Tensor:
    """Return the relevance of all images to each query, the product of their vectors: (Q, N) float64, at least 0."""
    products = (vectors[queries.numpy()] @ vectors.T).toarray()
    return torch.from_numpy(products).double().clamp_min(0)


def matched_captions(vectors: csr_matrix, first: Sequence[int], second: Sequence[int]) -> float:
    """Return ``match_kernel`` of two images, given the rows of their captions in ``vectors``."""
    return match_kernel(torch.from_numpy((vectors[first] @ vectors[second].T).toarray()))
