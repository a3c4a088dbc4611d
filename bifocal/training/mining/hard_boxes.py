"""Mining of hard-negative boxes for phrase localization."""

import torch
from torch import Generator, Tensor


def hard_negative_boxes(
    phrases: Tensor, boxes: Tensor, positive: Tensor, generator: Generator, max_negatives: int = 50
) -> list[Tensor]:
    """Return for each phrase the boxes that score above one of its positive boxes.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.3: the
    proposals of a phrase's images that score above its ground-truth boxes become negatives of the second training.

    Args:
        phrases: embeddings of the phrases.
        boxes: embeddings of the boxes of the images, ground truth and proposals.
        positive: whether a box is a positive of a phrase.
        generator: draws the negatives of a phrase that has more than ``max_negatives``.
        max_negatives: hard negatives kept per phrase.

    Shape:
        phrases (P, d), boxes (B, d), positive (P, B) bool -> P tensors of rows of boxes, ascending.

    Raises:
        ValueError: the shapes differ, or a phrase has no positive box.

    Example:
        >>> phrases, boxes = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.8, 0.6], [0.9, 0.4], [0.6, 0.8]])
        >>> positive = torch.tensor([[True, False, False]])
        >>> hard_negative_boxes(phrases, boxes, positive, Generator())
        [tensor([1])]
    """
    if positive.shape != (len(phrases), len(boxes)):
        raise ValueError(
            f"positive {tuple(positive.shape)}: expected one row per phrase ({len(phrases)}) and one column per box "
            f"({len(boxes)})"
        )
    if not positive.any(dim=1).all():
        raise ValueError(f"{int((~positive.any(dim=1)).sum())} of {len(phrases)} phrases have no positive box")
    negatives = []
    for phrase, positives in zip(phrases, positive, strict=True):
        scores = boxes @ phrase
        (hard,) = (~positives & (scores > scores[positives].min())).nonzero(as_tuple=True)
        negatives.append(hard[torch.randperm(len(hard), generator=generator)[:max_negatives]].sort().values)
    return negatives
