"""Pointing head of MaskCLIP."""

from dataclasses import dataclass

from torch import Tensor, nn

from bifocal.localization.heads.contrastive import ContrastiveHead, merge_heads, projections


@dataclass(frozen=True)
class MaskCLIP(ContrastiveHead):
    """Values of the last attention, each patch by itself: queries and keys are left out.

    Zhou, Loy and Dai, "Extract free dense labels from CLIP", ECCV 2022, section 3.2: the attention pooling of their
    eq. (1) without its weights, value and output projection as convolutions of 1 x 1. As in the authors' code for
    vision transformers, the residual connections and the MLP of the last block remain::

        attend(x) = (x W_v + b_v) W_o + b_o

    See ``ContrastiveHead`` for the arguments and for the block around it.

    Example:
        >>> MaskCLIP(size=336).size
        336
    """

    def attend(self, attention: nn.MultiheadAttention, tokens: Tensor) -> Tensor:
        """Return the projected values; see ``ContrastiveHead``."""
        _, _, values = projections(attention, tokens)
        return merge_heads(attention, values)
