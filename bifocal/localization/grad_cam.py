"""Grad-CAM for a pair of images: which parts of each made them similar."""

from collections.abc import Callable

import torch
from torch import Tensor

Embed = Callable[[Tensor], Tensor]
"""The last activations of one image (R, D) -> its signature (d,)."""


def pair_heatmaps(embed: Embed, first: Tensor, second: Tensor, k: int = 5) -> tuple[Tensor, Tensor]:
    """Heatmaps of two images that show what contributed to the dot product of their signatures.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6, after Grad-CAM (Selvaraju et al.):
    the activations of the last convolutional layer, weighted by the gradient of the k dimensions of the signatures
    that contributed most to their similarity, averaged over the cells, and cut at zero.

    Args:
        embed: differentiable; makes the signature of an image's activations.
        first, second: activations of the last convolutional layer, one row a cell.
        k: dimensions.

    Shape:
        first (R, D), second (R', D) -> (R,), (R',)

    Raises:
        ValueError: ``k`` is less than 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}: at least one dimension must be looked at")
    # Also under inference_mode, where evaluation runs.
    with torch.inference_mode(False), torch.enable_grad():
        activations = [image.detach().clone().requires_grad_() for image in (first, second)]
        signatures = [embed(image) for image in activations]
        contributions = (signatures[0] * signatures[1]).detach()
        dimensions = contributions.topk(min(k, len(contributions))).indices
        found = []
        for image, signature in zip(activations, signatures, strict=True):
            (gradient,) = torch.autograd.grad(signature[dimensions].sum(), image)
            found.append((image.detach() @ gradient.mean(dim=0)).relu())
    return found[0], found[1]
