"""Grad-CAM of a pair of images: the regions that make the two similar."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bifocal.features.boxes import cell_boxes

Embed = Callable[[Tensor], Tensor]
"""Maps the last activations of one image (R, D) to its embedding (d,)."""


class Activations(NamedTuple):
    """Last activations (R, D) of one image with relative boxes (R, 4), and the differentiable rest
    of the encoder."""

    cells: Tensor
    boxes: Tensor
    embed: Embed

    @classmethod
    def from_maps(cls, maps: Tensor, embed_maps: Embed) -> "Activations":
        """Return the activations of one image from its maps (1, D, h, w)."""
        size = maps.shape[2:]
        boxes = cell_boxes(*size).to(maps)
        return cls(
            maps[0].flatten(1).T,
            boxes,
            lambda cells: embed_maps(cells.T.unflatten(1, size)[None])[0],
        )


def pair_heatmaps(
    embed: Embed, first: Tensor, second: Tensor, k: int = 5, embed_second: Embed | None = None
) -> tuple[Tensor, Tensor]:
    """Return heatmaps of two images that show which cells contribute to the dot product of their
    embeddings.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6, after Grad-CAM
    (Selvaraju et al.): the activations of the last convolutional layer, weighted by the gradient of
    the k dimensions that contribute most to the similarity, averaged over the cells, and cut at
    zero.

    Args:
        embed: differentiable; maps activations to the embedding.
        first, second: activations of the last convolutional layer, one row per cell.
        k: dimensions.
        embed_second: ``embed`` of the second image, if it depends on the image's size; None for
            ``embed``.

    Shape:
        first (R, D), second (R', D) -> (R,), (R',)

    Raises:
        ValueError: ``k`` is less than 1.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
        >>> pair_heatmaps(lambda cells: cells.mean(dim=0), first, second, k=1)
        (tensor([0.5000, 0.0000]), tensor([2.]))
    """
    if k < 1:
        raise ValueError(f"k is {k}: keep at least one dimension")
    # Gradients are needed even if the caller runs under inference_mode, as evaluation does.
    with torch.inference_mode(False), torch.enable_grad():
        activations = [image.detach().clone().requires_grad_() for image in (first, second)]
        embeddings = [embed(activations[0]), (embed_second or embed)(activations[1])]
        contributions = (embeddings[0] * embeddings[1]).detach()
        dimensions = contributions.topk(min(k, len(contributions))).indices
        heatmaps = []
        for image, embedding in zip(activations, embeddings, strict=True):
            (gradient,) = torch.autograd.grad(embedding[dimensions].sum(), image)
            heatmaps.append((image.detach() @ gradient.mean(dim=0)).relu())
    return heatmaps[0], heatmaps[1]
