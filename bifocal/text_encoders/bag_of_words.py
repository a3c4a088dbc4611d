"""Linear map of a bag of words."""

from torch import nn

from bifocal.text_encoders.base import VectorTextEncoder


class BagOfWordsEncoder(VectorTextEncoder):
    """theta(t) = W't / |W't| of the l2-normalized tf-idf vector t; a caption without known terms
    stays zero.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 4.

    Args:
        input_dim: K, number of terms (46,881 in the paper).
        dim: d, dimension of the embedding.

    Shape:
        values (B, K), lengths ignored -> (B, d).

    Example:
        >>> import torch
        >>> BagOfWordsEncoder(input_dim=5, dim=4)(
        ...     torch.rand(2, 5), torch.ones(2, dtype=torch.int64)
        ... ).shape
        torch.Size([2, 4])
    """

    def __init__(self, input_dim: int = 46_881, dim: int = 2048) -> None:
        super().__init__(input_dim, dim)
        self.projection = nn.Linear(input_dim, dim, bias=False)
