"""Mappings to the common space of multi-level grounding."""

from torch import nn


def mapping(input_dim: int, dim: int, count: int, slope: float) -> nn.Sequential:
    """Return ``count`` fully connected layers to ``dim``, each with a leaky ReLU; one layer is linear.

    As in the authors' code, a leaky ReLU also follows the last of several layers. Weights start by Glorot's rule
    (Glorot and Bengio, AISTATS 2010), and biases at 0.
    """
    # Attention is a ReLU of cosines, and negative cosines get no gradient: the last ReLU makes most of them positive.
    # Positive biases would too, but would give all cells of a level almost one direction.
    layers: list[nn.Module] = []
    for number in range(count):
        linear = nn.Linear(dim if number else input_dim, dim)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[: None if count > 1 else 1])
