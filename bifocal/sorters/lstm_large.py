"""The recurrent sorter of SoDeep's paper."""

from torch import Tensor, nn

from bifocal.sorters.ranks import TrainedSorter


class LSTMLargeSorter(TrainedSorter):
    """Bidirectional LSTM over the scores, then an affine layer over the states of all positions.

    Engilberge et al., "SoDeep: a sorting deep net to learn ranking loss surrogates", CVPR 2019;
    thesis 5.3.1, figure 5.3a. ``lstm_large`` of the authors' code, "the model used in the paper":
    18.6 million weights for 100 scores, most of them in the affine layer.
    ``PositionwiseLSTMSorter`` is smaller and takes several lengths.

    The sorter is not permutation-equivariant. It must be trained, see
    ``bifocal.training.pretraining.sorter``, and accepts only the length that it is trained for.

    Args:
        length: scores per vector.
        hidden: LSTM units per direction and layer.
        layers: LSTM layers.

    Shape:
        scores (..., length) -> ranks (..., length), 0 = best.

    Raises:
        ValueError: a vector has another length.

    Example:
        >>> import torch
        >>> LSTMLargeSorter(length=8, hidden=4)(torch.randn(3, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, length: int = 100, hidden: int = 512, layers: int = 2) -> None:
        super().__init__()
        self.length = length
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(length * 2 * hidden, length)

    def fractions(self, rows: Tensor) -> Tensor:
        """Return the ranks of rows (B, n) as fractions of n."""
        fractions: Tensor = self.projection(self.lstm(rows.unsqueeze(2))[0].flatten(1))
        return fractions
