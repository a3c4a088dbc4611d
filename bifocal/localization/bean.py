"""BEAN's heatmaps: the class activation maps that a text's largest entries name."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bifocal.backbones.trainable import reads_pixels
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import BEANEncoder, SMILEEncoder
from bifocal.localization.base import RegionScores, RegionVectors, as_numbers


@runtime_checkable
class AdaptedCells(Protocol):
    """An encoder whose cells go through ``adaptation``, are pooled, and go through ``projection``, as BEAN's do."""

    adaptation: nn.Linear
    projection: nn.Linear


class BEANHeatmap:
    """BEAN's heatmap, eq. (8)-(9), over the cells of stored features or those of its fully convolutional network.

    An image of pixels is looked at as a whole: squeezed to a square where the encoder's protocol does that, else in its
    own aspect, with no corner cut off. SMILE's first layer is a 1 x 1 convolution into the joint space as well, so its
    cells have such maps too.

    Args:
        k: dimensions that are kept, to be chosen on validation images: 180 of 2400 in the paper.
    """

    def __init__(self, k: int = 180) -> None:
        self.k = k

    def see(self, encoder: nn.Module, regions: RegionBatch) -> RegionVectors:
        """See ``bifocal.localization.base.Localizer``."""
        if isinstance(encoder, SMILEEncoder):
            activations = encoder.convolution(as_numbers(encoder, regions.features))
        elif isinstance(encoder, AdaptedCells) and not reads_pixels(encoder):
            cells = encoder.adaptation(as_numbers(encoder, regions.features))
            activations = class_activation_maps(cells, encoder.projection.weight)
        elif isinstance(encoder, BEANEncoder):
            return see_pixels(encoder, regions)
        else:
            raise ValueError(
                f"BEANHeatmap localizes with a BEANEncoder or SMILEEncoder, and the model has a "
                f"{type(encoder).__name__}"
            )
        return RegionVectors(activations, regions.mask, regions.boxes)

    def heat(self, seen: RegionVectors, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``."""
        scores = bean_heatmaps(seen.vectors, texts, self.k)
        return RegionScores(scores.masked_fill(~seen.mask, -torch.inf), seen.boxes)

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``."""
        return self.heat(self.see(encoder, regions), texts)


def see_pixels(encoder: BEANEncoder, regions: RegionBatch) -> RegionVectors:
    """G' of eq. (8) of whole images: as many cells as the network's map has, which depends on the image's size."""
    assert encoder.backbone is not None
    found, places = [], []
    for image in encoder.whole_views(as_numbers(encoder, regions.features), regions.mask):
        maps = encoder.backbone(image.unsqueeze(0))
        cells = class_activation_maps(encoder.adapted(maps)[0], encoder.projection.weight)
        found.append(cells)
        places.append(cell_boxes(*maps.shape[2:]).to(cells))
    present = [cells.new_ones(len(cells), dtype=torch.bool) for cells in found]
    return RegionVectors(*(pad_sequence(parts, batch_first=True) for parts in (found, present, places)))


def bean_heatmaps(activations: Tensor, texts: Tensor, k: int = 180) -> Tensor:
    """How much each cell speaks of a text.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (9): H = sum over the k largest entries u of v of
    |v[u]| G'[:, :, u]. The paper chose k = 180 of d = 2400 on validation images; a d below k uses all entries.

    Args:
        activations: G' of eq. (8): the encoder's feature maps through the linear part of its last layer, as
            ``class_activation_maps`` gives them.
        texts: v, the embedding of one text for each image.
        k: dimensions that are kept.

    Shape:
        activations (N, R, d), texts (N, d) -> (N, R)

    Raises:
        ValueError: the dimensions differ, or ``k`` is less than 1.
    """
    if activations.ndim != 3 or texts.shape != (len(activations), activations.shape[2]):
        raise ValueError(
            f"activations {tuple(activations.shape)} and texts {tuple(texts.shape)} differ: "
            "expected (N, R, d) and one text (N, d) for each image"
        )
    if k < 1:
        raise ValueError(f"k is {k}: at least one dimension must be kept")
    values, kept = texts.topk(min(k, texts.shape[1]), dim=1)
    named = activations.gather(2, kept.unsqueeze(1).expand(-1, activations.shape[1], -1))
    return torch.einsum("nrk,nk->nr", named, values.abs())


def class_activation_maps(features: Tensor, projection: Tensor) -> Tensor:
    """G' of eq. (8): the linear part of the last layer, as a 1 x 1 convolution; its bias moves no peak.

    Args:
        projection: A, the weights of the last layer.

    Shape:
        features G (..., R, D'), projection (d, D') -> (..., R, d)
    """
    return features @ projection.T
