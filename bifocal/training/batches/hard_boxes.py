"""Hard-negative boxes of phrases."""

import torch
from torch import Generator, Tensor


def hard_negative_boxes(
    phrases: Tensor, boxes: Tensor, truth: Tensor, generator: Generator, at_most: int = 50
) -> list[Tensor]:
    """For every phrase the boxes that are closer to it than one of its own, at most ``at_most`` of them, at random.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.3: of the
    proposals of a phrase's images, those that score above its ground-truth boxes are recorded, and the embedding is
    trained on with them among the negatives.

    Args:
        phrases: embeddings of the different phrases.
        boxes: embeddings of the boxes of the images, ground truth and proposals.
        truth: whether a box is one of the phrase's own.
        at_most: hard negatives of a phrase.

    Shape:
        phrases (P, d), boxes (B, d), truth (P, B) bool -> P tensors of rows of boxes, rising.

    Raises:
        ValueError: the shapes differ, or a phrase has no box of its own.
    """
    if truth.shape != (len(phrases), len(boxes)):
        raise ValueError(f"truth {tuple(truth.shape)}, expected a row for each of {len(phrases)} phrases and a column "
                         f"for each of {len(boxes)} boxes")  # fmt: skip
    if not truth.any(dim=1).all():
        raise ValueError(f"{int((~truth.any(dim=1)).sum())} of {len(phrases)} phrases have no box of their own")
    found = []
    for phrase, own in zip(phrases, truth, strict=True):
        scores = boxes @ phrase
        (hard,) = (~own & (scores > scores[own].min())).nonzero(as_tuple=True)
        found.append(hard[torch.randperm(len(hard), generator=generator)[:at_most]].sort().values)
    return found
