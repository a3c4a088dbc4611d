"""Embeddings that somebody else's model made: what a foundation model gives on the same data."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.batch import ImageCaptionPairs


def read_embeddings(images: Path, captions: Path, pairs: ImageCaptionPairs | None = None) -> tuple[Tensor, Tensor]:
    """Embeddings of images and captions, such as those of CLIP, from two ``.npy`` files, l2-normalised.

    Give them to ``bifocal.metrics.retrieval_ranks`` for the zero-shot row of a table.

    Args:
        images, captions: one row for each image and each caption, in the order of the dataset's split.
        pairs: the split, to check their numbers against; None to check nothing.

    Shape:
        -> (N, d), (M, d) float32

    Raises:
        ValueError: they are no matrices of numbers, their dimensions differ, a row is zero or not finite, or there are
            not as many as the split has.
    """
    found = [_matrix(path) for path in (images, captions)]
    if found[0].shape[1] != found[1].shape[1]:
        raise ValueError(
            f"{images} holds {found[0].shape[1]} numbers a row and {captions} {found[1].shape[1]}: "
            "images and captions need one space"
        )
    wanted: Sequence[int] = () if pairs is None else (len(pairs.image_ids), len(pairs))
    for path, matrix, count, what in zip((images, captions), found, wanted, ("images", "captions"), strict=False):
        if len(matrix) != count:
            raise ValueError(f"{path} holds {len(matrix)} rows, and the split has {count} {what}: one row for each")
    return found[0], found[1]


def _matrix(path: Path) -> Tensor:
    values = np.load(path, allow_pickle=False)
    if values.ndim != 2 or not np.issubdtype(values.dtype, np.floating):
        raise ValueError(f"{path} holds {values.dtype} {values.shape}, expected a matrix of floating-point numbers")
    matrix = torch.from_numpy(values.astype(np.float32))
    norms = matrix.norm(dim=1)
    if not (torch.isfinite(norms) & (norms > 0)).all():
        raise ValueError(f"{path}: {int((~(norms > 0)).sum())} rows are zero or not finite")
    return normalize(matrix, dim=1)
