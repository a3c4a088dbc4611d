"""What image and text encoders share: their base, the layers of heads, the mapping of multi-level
grounding, and the concatenation of several encoders."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad


def mapping(input_dim: int, dim: int, count: int, slope: float) -> nn.Sequential:
    """Return ``count`` fully connected layers to ``dim``, each with a leaky ReLU; one layer is
    linear.

    As in the authors' code, a leaky ReLU also follows the last of several layers. Weights start by
    Glorot's rule (Glorot and Bengio, AISTATS 2010), and biases at 0.
    """
    # Attention is a ReLU of cosines, and negative cosines get no gradient: the last ReLU makes most
    # of them positive. Positive biases would too, but would give all cells of a level almost one
    # direction.
    layers: list[nn.Module] = []
    for number in range(count):
        linear = nn.Linear(dim if number else input_dim, dim)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[: None if count > 1 else 1])


def two_layers(input_dim: int, hidden: int, dim: int, dropout: float) -> nn.Sequential:
    """Return two fully connected layers with a ReLU between them, and batch normalization after the
    last."""
    first = nn.Linear(input_dim, hidden), nn.ReLU(), nn.Dropout(dropout)
    return nn.Sequential(*first, nn.Linear(hidden, dim), nn.BatchNorm1d(dim))


class ResidualMap(nn.Module):
    """``normalize(x + blend * residual(x))``, x of unit norm cut or filled to ``dim``; ``blend`` is
    1 in training."""

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


class Encoder(nn.Module):
    """Encoder of values of ``input_dim`` to a joint space of ``dim``."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.input_dim, self.dim = input_dim, dim


class ResidualEncoder(Encoder):
    """Encoder by a ``ResidualMap`` of the vector of a contrastive tower."""

    def __init__(
        self, input_dim: int = 512, dim: int = 512, hidden: int = 256, dropout: float = 0.2
    ) -> None:
        super().__init__(input_dim, dim)
        self.head = ResidualMap(input_dim, dim, hidden, dropout)


def join(vectors: Sequence[Tensor]) -> Tensor:
    """Return unit vectors (..., d) of n models as one unit vector (..., n d)."""
    joined: Tensor = torch.cat(list(vectors), dim=-1) / len(vectors) ** 0.5
    return joined
