"""A linear map of a bag of words."""

from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.text_encoders.base import TextEncoder
from bifocal.text_encoders.vectors import check_vectors


class BagOfWordsEncoder(TextEncoder):
    """theta(t) = W't / |W't|, t being the l2-normalised tf-idf vector; a caption without known terms stays zero.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 4.

    Args:
        input_dim: K, terms (46,881 in the paper). dim: d.

    Shape:
        values (B, K), lengths unused -> (B, d).
    """

    def __init__(self, input_dim: int = 46_881, dim: int = 2048) -> None:
        super().__init__(input_dim, dim)
        self.projection = nn.Linear(input_dim, dim, bias=False)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        check_vectors(values, self.input_dim)
        return normalize(self.projection(values), dim=1)
