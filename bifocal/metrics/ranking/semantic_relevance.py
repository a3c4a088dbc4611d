"""Ground truth of semantic retrieval: tf-idf similarity of captions (Gordo and Larlus, CVPR 2017,
section 4)."""

import numpy as np
import scipy  # its packages are imported when they are used
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.text.store import sparse_rows
from bifocal.text.vectorizers.base import Vectorizer


def image_vectors(vectorizer: Vectorizer, dataset: Dataset) -> "scipy.sparse.csr_matrix":
    """Return each image's unit sum (N, K) of caption vectors; ``TFIDF(documents="images")`` is the
    paper's proxy."""
    encoded = vectorizer.transform(list(dataset.captions["text"]))
    captions = sparse_rows(vectorizer.format, encoded.values, encoded.indices)
    image = dataset.image_rows(dataset.captions["image_id"])
    return sum_by_image(captions, image, len(dataset.images))


def sum_by_image(
    captions: "scipy.sparse.csr_matrix", image_of_caption: NDArray[np.int64], images: int
) -> "scipy.sparse.csr_matrix":
    """Return the unit sums (N, K) of the caption vectors (M, K) of each image."""
    ones = np.ones(len(image_of_caption), dtype=captions.dtype)
    members = scipy.sparse.csr_matrix(
        (ones, (image_of_caption, np.arange(len(ones)))), (images, len(ones))
    )
    sums = scipy.sparse.csr_matrix(members @ captions)
    norms = np.sqrt(sums.multiply(sums).sum(axis=1).A1)
    sums.data /= np.repeat(norms, np.diff(sums.indptr)).clip(min=1e-12)
    return sums


def relevance(vectors: "scipy.sparse.csr_matrix", queries: Tensor) -> Tensor:
    """Return the relevance of all images to each query, the product of their vectors: (Q, N)
    float64, at least 0."""
    products = (vectors[queries.numpy()] @ vectors.T).toarray()
    return torch.from_numpy(products).double().clamp_min(0)
