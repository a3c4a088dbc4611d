"""A recurrent sorter with a small projection."""

import torch
from torch import Tensor, nn

from bifocal.sorters.ranks import check_length, check_scores


class PositionwiseLSTMSorter(nn.Module):
    """Bidirectional LSTM over the scores, then a linear projection at every position.

    Engilberge et al., "SoDeep: a sorting deep net to learn ranking loss surrogates", CVPR 2019;
    thesis 5.3.1, figure 5.3a, but for the last layer: the paper's sorter, ``LSTMLargeSorter``, ends
    in one affine layer over the states of all positions, with most of the parameters, and is tied
    to one length. The two directions of the LSTM already carry the whole sequence to every
    position, so here all positions share one small projection, and the sorter can be trained on a
    range of lengths.

    The sorter is not permutation-equivariant. It must be trained, see
    ``bifocal.training.pretraining.sorter``.

    Args:
        length: maximum number of scores per vector in training.
        shortest: minimum number of scores per vector in training; ``length`` by default.
        hidden: LSTM units per direction and layer.
        layers: LSTM layers.

    Shape:
        scores (..., n), shortest <= n <= length, -> ranks (..., n), 0 = best.

    Raises:
        ValueError: ``shortest`` is not in [1, length], or a vector has a length outside [shortest,
            length].

    Example:
        >>> PositionwiseLSTMSorter(length=8, shortest=4, hidden=4)(torch.randn(3, 6)).shape
        torch.Size([3, 6])
    """

    def __init__(
        self, length: int = 100, shortest: int | None = None, hidden: int = 128, layers: int = 2
    ) -> None:
        super().__init__()
        self.length = length
        self.shortest = length if shortest is None else shortest
        if not 1 <= self.shortest <= length:
            raise ValueError(
                f"shortest is {shortest} and length {length}: expected 1 <= shortest <= length"
            )
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(2 * hidden, 1)

    def train(self, mode: bool = True) -> "PositionwiseLSTMSorter":
        """Set the mode of all modules but the LSTM, which stays in training mode.

        cuDNN has no backward pass in evaluation mode, and without dropout both modes compute the
        same.
        """
        super().train(mode)
        self.lstm.train()
        return self

    def forward(self, scores: Tensor) -> Tensor:
        scores = check_scores(scores).to(self.projection.weight.dtype)
        check_length(self, scores, self.length, self.shortest)
        length = scores.shape[-1]
        states, _ = self.lstm(scores.reshape(-1, length, 1))
        # The network predicts the rank as a fraction of the length, the unit of thesis table 5.1.
        return torch.mul(self.projection(states).reshape(scores.shape), length)
