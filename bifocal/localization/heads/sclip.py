"""Pointing head of SCLIP."""

from dataclasses import dataclass

from torch import Tensor, nn

from bifocal.localization.heads.contrastive import ContrastiveHead, merge_heads, projections


@dataclass(frozen=True)
class SCLIP(ContrastiveHead):
    """Correlative self-attention: queries attend to queries, and keys to keys.

    Wang, Mei and Yuille, "SCLIP: Rethinking self-attention for dense vision-language inference", ECCV 2024, section
    3.2, for each head of dimension d, with all tokens::

        attend(x) = ((softmax(q q^T / sqrt(d)) + softmax(k k^T / sqrt(d))) v) W_o + b_o

    See ``ContrastiveHead`` for the arguments and for the block around it.

    Example:
        >>> SCLIP().center
        0.25
    """

    def attend(self, attention: nn.MultiheadAttention, tokens: Tensor) -> Tensor:
        """Return the correlative self-attention; see ``ContrastiveHead``."""
        queries, keys, values = projections(attention, tokens)
        scale = queries.shape[3] ** -0.5
        weights = [(part @ part.transpose(2, 3) * scale).softmax(dim=3) for part in (queries, keys)]
        return merge_heads(attention, (weights[0] + weights[1]) @ values)
