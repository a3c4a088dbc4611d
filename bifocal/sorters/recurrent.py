"""The recurrent sorters of SoDeep: of the paper, and with a small projection."""

from torch import Tensor, nn

from bifocal.sorters.ranks import TrainedSorter


class LSTMLargeSorter(TrainedSorter):
    """Bidirectional LSTM over the scores, then an affine layer over the states of all positions.

    Engilberge et al., "SoDeep: a sorting deep net to learn ranking loss surrogates", CVPR 2019;
    thesis 5.3.1, figure 5.3a. ``lstm_large`` of the authors' code, "the model used in the paper":
    18.6 million weights for 100 scores, most of them in the affine layer.
    ``PositionwiseLSTMSorter`` is smaller and takes several lengths.

    Args:
        length: scores per vector.
        hidden: LSTM units per direction and layer.
        layers: LSTM layers.

    Shape:
        scores (..., length) -> ranks (..., length), 0 = best.

    Example:
        >>> import torch
        >>> LSTMLargeSorter(length=8, hidden=4)(torch.randn(3, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, length: int = 100, hidden: int = 512, layers: int = 2) -> None:
        super().__init__(length)
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(length * 2 * hidden, length)

    def fractions(self, rows: Tensor) -> Tensor:
        """Return the ranks of rows (B, n) as fractions of n."""
        fractions: Tensor = self.projection(self.lstm(rows.unsqueeze(2))[0].flatten(1))
        return fractions


class PositionwiseLSTMSorter(TrainedSorter):
    """Bidirectional LSTM over the scores, then a linear projection at every position.

    Engilberge et al., "SoDeep: a sorting deep net to learn ranking loss surrogates", CVPR 2019;
    thesis 5.3.1, figure 5.3a, but for the last layer: the paper's sorter, ``LSTMLargeSorter``, ends
    in one affine layer over the states of all positions, with most of the parameters, and is tied
    to one length. The two directions of the LSTM already carry the whole sequence to every
    position, so here all positions share one small projection, and the sorter can be trained on a
    range of lengths.

    Args:
        length: maximum number of scores per vector in training.
        shortest: minimum number of scores per vector in training; ``length`` by default.
        hidden: LSTM units per direction and layer.
        layers: LSTM layers.

    Shape:
        scores (..., n), shortest <= n <= length, -> ranks (..., n), 0 = best.

    Example:
        >>> import torch
        >>> PositionwiseLSTMSorter(length=8, shortest=4, hidden=4)(torch.randn(3, 6)).shape
        torch.Size([3, 6])
    """

    def __init__(
        self, length: int = 100, shortest: int | None = None, hidden: int = 128, layers: int = 2
    ) -> None:
        super().__init__(length, shortest)
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(2 * hidden, 1)

    def fractions(self, rows: Tensor) -> Tensor:
        """Return the ranks of rows (B, n) as fractions of n."""
        fractions: Tensor = self.projection(self.lstm(rows.unsqueeze(2))[0])
        return fractions
