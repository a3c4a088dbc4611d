"""Two fully connected layers over a global image feature."""

from torch import Tensor, nn
from torch.nn.functional import normalize


class ProjectionEncoder(nn.Module):
    """Two fully connected layers over a global image feature.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, figure 1: ReLU
    between the layers, batch normalisation after the last, l2. Several regions are averaged first.

    Args:
        input_dim: D, channels of the feature (4,096 of VGG-19 in the paper).
        dim: d, of the embedding.
        hidden: units of the first layer.
        dropout: probability, after the ReLU.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, d), of unit norm.
    """

    def __init__(self, input_dim: int = 4096, dim: int = 512, hidden: int = 2048, dropout: float = 0.5) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(input_dim, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim),
            nn.BatchNorm1d(dim),
        )

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        present = mask.unsqueeze(2)
        mean = (features * present).sum(dim=1) / present.sum(dim=1)
        return normalize(self.layers(mean), dim=1)
