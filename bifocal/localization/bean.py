"""BEAN's heatmaps: the class activation maps that a text's largest entries name."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.image_encoders import SmileEncoder
from bifocal.localization.base import Located


@runtime_checkable
class AdaptedCells(Protocol):
    """An encoder whose cells go through ``adaptation``, are pooled, and go through ``projection``, as BEAN's do."""

    adaptation: nn.Linear
    projection: nn.Linear


class BeanHeatmap:
    """BEAN's heatmap, eq. (8)-(9), over the cells of stored features.

    SMILE's first layer is a 1 x 1 convolution into the joint space as well, so its cells have such maps too.

    Args:
        k: dimensions that are kept, to be chosen on validation images: 180 of 2400 in the paper.
    """

    def __init__(self, k: int = 180) -> None:
        self.k = k

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> Located:
        """See ``bifocal.localization.base.Localizer``."""
        features = regions.features.to(texts.dtype)
        if isinstance(encoder, SmileEncoder):
            activations = encoder.convolution(features)
        elif isinstance(encoder, AdaptedCells) and reads_cells(encoder):
            activations = class_activation_maps(encoder.adaptation(features), encoder.projection.weight)
        else:
            raise ValueError(
                f"BeanHeatmap localizes with a BeanEncoder or SmileEncoder over stored cells, and the model has a "
                f"{type(encoder).__name__}"
            )
        scores = bean_heatmaps(activations, texts, self.k)
        return Located(scores.masked_fill(~regions.mask, -torch.inf), regions.boxes)


def reads_cells(encoder: nn.Module) -> bool:
    """Whether ``encoder`` stands on stored cells and not on a backbone of its own that reads pixels."""
    return getattr(encoder, "backbone", None) is None


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
        features G (N, R, D'), projection (d, D') -> (N, R, d)
    """
    return features @ projection.T
