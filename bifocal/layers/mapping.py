"""Mappings to the common space of multi-level grounding."""

from torch import nn


def mapping(input_dim: int, dim: int, count: int, slope: float) -> nn.Sequential:
    """Return ``count`` fully connected layers to ``dim``, each with a leaky ReLU; one layer is linear.

    The last ReLU and the initialization (Glorot and Bengio, AISTATS 2010; biases are 0) are those of the authors' code.
    The ReLU makes the cosines of a new model positive on average, and leaves cells different: a ReLU of negative
    cosines has no gradient, and equal cells stay equal. torch's biases give all cells almost one direction.
    """
    layers: list[nn.Module] = []
    for number in range(count):
        linear = nn.Linear(dim if number else input_dim, dim)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[: None if count > 1 else 1])
