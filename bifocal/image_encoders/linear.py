"""A linear map of the mean region: what linear methods see of an image."""

from torch import Tensor, nn
from torch.nn.functional import normalize


class LinearEncoder(nn.Module):
    """The mean of the regions through one affine map, l2-normalised.

    The image side of linear embeddings: WSABIE (Weston et al., IJCAI 2011), "Linear" of Wang et al., CVPR 2016, table
    1, and canonical correlation analysis (``bifocal.baselines``).

    Args:
        input_dim: D, channels of a region's feature.
        dim: d, of the embedding.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, d), of unit norm.
    """

    def __init__(self, input_dim: int = 4096, dim: int = 512) -> None:
        super().__init__()
        self.projection = nn.Linear(input_dim, dim)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        present = mask.unsqueeze(2)
        mean = (features * present).sum(dim=1) / present.sum(dim=1)
        return normalize(self.projection(mean), dim=1)
