"""Precomputed embeddings of another model, such as a foundation model, on the same data."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.models.batch import ImageCaptionPairs


def read_embeddings(images: Path, captions: Path, pairs: ImageCaptionPairs | None = None) -> tuple[Tensor, Tensor]:
    """Read embeddings of images and captions, such as those of CLIP, from two ``.npy`` files; l2-normalize them.

    Pass them to ``bifocal.metrics.retrieval_ranks`` for the zero-shot row of a table.

    Args:
        images, captions: files with one row for each image and each caption, in the order of the dataset's split.
        pairs: the split, to check the numbers of rows; None for no check.

    Shape:
        -> (N, d), (M, d) float32

    Raises:
        ValueError: a file holds no matrix of floats, the dimensions differ, a row is zero or not finite, or the number
            of rows differs from the split.
    """
    embeddings = [_read_matrix(path) for path in (images, captions)]
    if embeddings[0].shape[1] != embeddings[1].shape[1]:
        raise ValueError(
            f"{images} has {embeddings[0].shape[1]} columns and {captions} {embeddings[1].shape[1]}: "
            "images and captions need the same dimension"
        )
    counts: Sequence[int] = () if pairs is None else (len(pairs.image_ids), len(pairs))
    for path, matrix, count, unit in zip((images, captions), embeddings, counts, ("images", "captions"), strict=False):
        if len(matrix) != count:
            raise ValueError(f"{path} has {len(matrix)} rows, and the split {count} {unit}: expected one row for each")
    return embeddings[0], embeddings[1]


def _read_matrix(path: Path) -> Tensor:
    values = np.load(path, allow_pickle=False)
    if values.ndim != 2 or not np.issubdtype(values.dtype, np.floating):
        raise ValueError(f"{path} holds {values.dtype} {values.shape}, expected a matrix of floating-point numbers")
    matrix = torch.from_numpy(values.astype(np.float32))
    norms = matrix.norm(dim=1)
    if not (torch.isfinite(norms) & (norms > 0)).all():
        raise ValueError(f"{path}: {int((~(norms > 0)).sum())} rows are zero or not finite")
    return normalize(matrix, dim=1)
