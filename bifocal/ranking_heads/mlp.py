"""A perceptron on the mean of the regions."""

from torch import Tensor, nn


class MLPHead(nn.Module):
    """Average the regions of an image and score the mean with a perceptron of two layers.

    Thesis 5.5.1 predicts the memorability of an image this way.

    Args:
        input_dim: D, channels of a region's feature.
        labels: C, scores per image.
        hidden: units of the hidden layer; 0 gives a single linear layer.

    Example:
        >>> import torch
        >>> MLPHead(input_dim=4, labels=3)(
        ...     torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
        ... ).shape
        torch.Size([2, 3])
    """

    def __init__(self, input_dim: int = 2048, labels: int = 1, hidden: int = 512) -> None:
        super().__init__()
        self.layers: nn.Module = nn.Linear(input_dim, labels)
        if hidden:
            self.layers = nn.Sequential(
                nn.Linear(input_dim, hidden), nn.ReLU(), nn.Linear(hidden, labels)
            )

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        present = mask.unsqueeze(2)
        mean = (features * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)
        scores: Tensor = self.layers(mean)
        return scores
