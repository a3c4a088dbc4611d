"""The map of both residual heads."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad


class ResidualMap(nn.Module):
    """``normalize(x + blend * residual(x))``, x of unit norm cut or filled to ``dim``; ``blend`` is 1 in training."""

    blend: Tensor

    def __init__(self, input_dim: int, dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(input_dim, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, dim)
        )
        self.dim = dim
        self.register_buffer("blend", torch.ones(()))
        self.reset()

    def reset(self) -> None:
        """Make the map the identity."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        unit = normalize(vectors, dim=1)
        same = pad(unit, (0, max(self.dim - unit.shape[1], 0)))[:, : self.dim]
        return normalize(same + self.blend * self.layers(unit), dim=1)
