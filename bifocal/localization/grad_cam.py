"""Grad-CAM for a pair of images: which parts of each made them similar."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bifocal.backbones.trainable import whole_images
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import BEANEncoder, RMACEncoder
from bifocal.localization.base import as_numbers

Embed = Callable[[Tensor], Tensor]
"""The last activations of one image (R, D) -> its signature (d,)."""


class Activations(NamedTuple):
    """What an encoder has of one image in the end: cells (R, D), boxes (R, 4) in [0, 1], and the way from here."""

    cells: Tensor
    boxes: Tensor
    embed: Embed


def last_activations(encoder: nn.Module, regions: RegionBatch) -> Activations:
    """The last activations of one image that have a place: stored regions, or the maps of a network over pixels.

    Args:
        regions: of one image.

    Raises:
        ValueError: the encoder gives no single vector for an image.
    """
    features = as_numbers(encoder, regions.features)
    if isinstance(encoder, BEANEncoder | RMACEncoder) and encoder.backbone is not None:
        if isinstance(encoder, BEANEncoder):
            (image,) = encoder.whole_views(features, regions.mask)
        else:
            (image,) = whole_images(features, regions.mask)
        maps = encoder.backbone(image.unsqueeze(0))
        size = maps.shape[2:]
        boxes = cell_boxes(*size).to(maps)
        return Activations(
            maps[0].flatten(1).T, boxes, lambda cells: encoder.aggregate(cells.T.unflatten(1, size)[None])[0]
        )
    present = regions.mask[0]

    def embed(cells: Tensor) -> Tensor:
        vectors: Tensor = encoder(cells.unsqueeze(0), present[present].unsqueeze(0))
        if vectors.ndim != 2:
            raise ValueError(f"a {type(encoder).__name__} gives several vectors for an image, Grad-CAM needs one")
        return vectors[0]

    return Activations(features[0, present], regions.boxes[0, present], embed)


def pair_heatmaps(
    embed: Embed, first: Tensor, second: Tensor, k: int = 5, embed_second: Embed | None = None
) -> tuple[Tensor, Tensor]:
    """Heatmaps of two images that show what contributed to the dot product of their signatures.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6, after Grad-CAM (Selvaraju et al.):
    the activations of the last convolutional layer, weighted by the gradient of the k dimensions of the signatures
    that contributed most to their similarity, averaged over the cells, and cut at zero.

    Args:
        embed: differentiable; makes the signature of an image's activations.
        first, second: activations of the last convolutional layer, one row a cell.
        k: dimensions.
        embed_second: of the second image, where its size makes it another function.

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
        signatures = [embed(activations[0]), (embed_second or embed)(activations[1])]
        contributions = (signatures[0] * signatures[1]).detach()
        dimensions = contributions.topk(min(k, len(contributions))).indices
        found = []
        for image, signature in zip(activations, signatures, strict=True):
            (gradient,) = torch.autograd.grad(signature[dimensions].sum(), image)
            found.append((image.detach() @ gradient.mean(dim=0)).relu())
    return found[0], found[1]
