"""Localizer of BEAN: the class activation maps of the text's largest dimensions."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bifocal.features import RegionBatch
from bifocal.localization.base import (
    Localizer,
    RegionScores,
    RegionVectors,
    ServedScores,
    check_texts,
    masked,
    require,
)

PAPER_K = 180
"""Number of dimensions, of 2400, that the paper chose on validation images."""
K_FRACTIONS = (0.025, 0.075, 0.2, 0.5, 1.0)
"""Candidates for k on validation images, as fractions of d."""


class BEANHeatmap(Localizer):
    """BEAN's heatmap: "Finding beans in burgers", CVPR 2018, eq. (8)-(9).

    The cells come from stored features, or from the encoder's fully convolutional network. An image
    of pixels is never cropped: it is stretched to a square if ``eval_resize`` is "stretch",
    otherwise it keeps its aspect ratio. SMILE's first layer is also a 1 x 1 convolution into the
    joint space, so the heatmap works with it too.

    Args:
        k: dimensions to keep. None: ``PAPER_K``, unless another value is chosen on validation
            images, see ``candidates``.

    Example:
        >>> from bifocal.image_encoders import SMILEEncoder
        >>> regions = RegionBatch(
        ...     torch.rand(1, 4, 3), torch.ones(1, 4, dtype=torch.bool), torch.rand(1, 4, 4)
        ... )
        >>> BEANHeatmap(k=2)(SMILEEncoder(3, 6), regions, torch.rand(1, 6)).scores.shape
        torch.Size([1, 4])
    """

    def __init__(self, k: int | None = None) -> None:
        self.fixed = k is not None
        self.k: int = PAPER_K if k is None else k

    def encode(self, encoder: Any, regions: RegionBatch) -> RegionVectors:
        """Return G' of eq. (8); see ``Localizer``."""
        require(encoder, "activation_maps", self, "BEANEncoder or SMILEEncoder")
        maps: RegionVectors = encoder.activation_maps(regions)
        return maps

    def score(
        self, vectors: RegionVectors, texts: Tensor, words: Sequence[Tensor | None] | None = None
    ) -> RegionScores:
        """Return eq. (9) for each cell; see ``Localizer``."""
        return masked(bean_heatmaps(vectors.vectors, texts, self.k), vectors)

    def served(self) -> ServedScores:
        return ServedScores("largest_dimensions", "regions", {"k": self.k})

    def candidates(self, dim: int) -> Mapping[int, Localizer]:
        """Return localizers by their k, in ascending order; empty if k was given."""
        values = (
            ()
            if self.fixed
            else sorted({max(1, round(fraction * dim)) for fraction in K_FRACTIONS})
        )
        return {k: BEANHeatmap(k) for k in values}


def bean_heatmaps(activations: Tensor, texts: Tensor, k: int = PAPER_K) -> Tensor:
    """Return the heatmap of a text over the cells.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, eq. (9): H = sum over the k largest
    entries u of v of
    |v[u]| G'[:, :, u].

    Args:
        activations: G' of eq. (8): the encoder's feature maps through the linear part of its last
            layer, see ``class_activation_maps``.
        texts: v, the embedding of one text per image.
        k: dimensions to keep; all of them if d is smaller.

    Shape:
        activations (N, R, d), texts (N, d) -> (N, R)

    Raises:
        ValueError: the dimensions differ, or ``k`` is less than 1.

    Example:
        >>> bean_heatmaps(torch.tensor([[[1.0, 5.0], [2.0, 0.0]]]), torch.tensor([[0.8, 0.1]]), k=1)
        tensor([[0.8000, 1.6000]])
    """
    check_texts(activations, texts)
    if k < 1:
        raise ValueError(f"k is {k}: keep at least one dimension")
    values, dimensions = texts.topk(min(k, texts.shape[1]), dim=1)
    kept = activations.gather(2, dimensions.unsqueeze(1).expand(-1, activations.shape[1], -1))
    return torch.einsum("nrk,nk->nr", kept, values.abs())


def class_activation_maps(features: Tensor, projection: Tensor) -> Tensor:
    """Return G' of eq. (8): the linear part of the last layer, applied to each cell.

    The layer's bias is left out: it adds the same value to every cell.

    Args:
        projection: A, the weights of the last layer.

    Shape:
        features G (..., R, D'), projection (d, D') -> (..., R, d)
    """
    return features @ projection.T
