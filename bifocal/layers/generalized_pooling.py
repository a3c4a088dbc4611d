"""Generalized pooling: learned weights of the sorted values of each channel."""

import math

import torch
from torch import Tensor, nn

SHARPNESS = 10.0
"""Factor of the generator's outputs before the softmax, as in the authors' code."""


class GeneralizedPooling(nn.Module):
    """Generalized pooling operator (GPO): a weighted sum of the k-th largest values of each channel.

    Chen et al., "Learning the best pooling strategy for visual semantic embedding", CVPR 2021, eq. (3)-(6). A
    bidirectional GRU reads the encodings of the positions 1 to n, and its outputs give one weight per position. So the
    weights depend only on the number n of elements; equal weights are mean pooling, all weight on k = 1 is maximum
    pooling. Each row of the mask (B, R) marks at least one of the values (B, R, d).

    Example:
        >>> pooling, values = GeneralizedPooling(), torch.tensor([[[1.0], [5.0], [9.0]]])
        >>> pooling(values, torch.tensor([[True, False, False]])).item()
        1.0
    """

    def __init__(self, position_dim: int = 32, hidden: int = 32) -> None:
        super().__init__()
        self.position_dim = position_dim
        self.forwards = nn.GRU(position_dim, hidden, batch_first=True)
        self.backwards = nn.GRU(position_dim, hidden, batch_first=True)
        self.output = nn.Linear(hidden, 1, bias=False)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        lengths = mask.sum(dim=1)
        weights = self.weights(lengths, values.shape[1]).to(values.dtype).unsqueeze(2)
        ranked = values.masked_fill(~mask.unsqueeze(2), -torch.inf).sort(dim=1, descending=True).values
        absent = torch.arange(values.shape[1], device=values.device) >= lengths[:, None]
        return (weights * ranked.masked_fill(absent.unsqueeze(2), 0)).sum(dim=1)

    def weights(self, lengths: Tensor, positions: int) -> Tensor:
        """Return theta (B, positions) of eq. (4), the weight of each rank; 0 for ranks from ``lengths`` (B,) on."""
        if torch.compiler.is_exporting():
            return self._weights(lengths, positions)
        # Rows of equal length have equal weights.
        different, row = lengths.unique(return_inverse=True)
        return self._weights(different, positions)[row]

    def _weights(self, lengths: Tensor, positions: int) -> Tensor:
        time = torch.arange(positions, device=lengths.device)
        encodings = self._encodings(time + 1).expand(lengths.shape[0], -1, -1)
        # The sequence is reversed up to its length; its padding stays behind it, where it changes nothing.
        mirrored = (lengths[:, None] - 1 - time).clamp(min=0)[:, :, None]
        backwards = self.backwards(encodings.gather(1, mirrored.expand_as(encodings)))[0]
        backwards = backwards.gather(1, mirrored.expand_as(backwards))
        logits = SHARPNESS * self.output((self.forwards(encodings)[0] + backwards) / 2).squeeze(2)
        weights: Tensor = logits.masked_fill(time >= lengths[:, None], -torch.inf).softmax(dim=1)
        return weights

    def _encodings(self, positions: Tensor) -> Tensor:
        """Return sines and cosines of the positions, eq. (5): (R,) -> (R, position_dim)."""
        even = torch.arange(0, self.position_dim, 2, device=positions.device)
        rates = torch.exp(-math.log(10_000.0) / self.position_dim * even)
        angles = positions[:, None] * rates
        pairs = torch.stack([angles.sin(), angles.cos()], dim=2)
        return pairs.flatten(1).to(self.output.weight.dtype)
