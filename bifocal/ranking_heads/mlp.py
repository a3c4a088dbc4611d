"""A perceptron on the mean of the regions."""

from torch import Tensor, nn


class MLPHead(nn.Module):
    """The mean over the regions, then a perceptron of two layers.

    Thesis 5.5.1 regresses features of an image to its memorability by such a perceptron.

    Args:
        input_dim: D, channels of a region's feature.
        labels: C, scores of an image.
        hidden: units between the two layers; 0 for one layer alone, a linear head.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, C).
    """

    def __init__(self, input_dim: int = 2048, labels: int = 1, hidden: int = 512) -> None:
        super().__init__()
        self.layers: nn.Module = nn.Linear(input_dim, labels)
        if hidden:
            self.layers = nn.Sequential(nn.Linear(input_dim, hidden), nn.ReLU(), nn.Linear(hidden, labels))

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        present = mask.unsqueeze(2)
        mean = (features * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)
        scores: Tensor = self.layers(mean)
        return scores
