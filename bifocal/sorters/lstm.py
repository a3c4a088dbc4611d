"""The recurrent sorter of SoDeep."""

import torch
from torch import Tensor, nn

from bifocal.sorters.ranks import check_scores


class LSTMSorter(nn.Module):
    """Bidirectional LSTM over the scores, then a linear projection at every position.

    Engilberge et al., "SoDeep: a sorting deep net to learn ranking loss surrogates", CVPR 2019; thesis 5.3.1,
    figure 5.3a. The thesis ends in one affine layer over the whole sequence, and the authors' code in a
    convolution over all states at once: weights that exist at one length alone, most of the network's
    parameters. Both directions of the LSTM already bring the whole sequence to every position, so ours projects
    each position's state with the same few weights. It can then be trained over a range of lengths.

    The order of the scores matters: it is not permutation-equivariant. It must be trained, see
    ``bifocal.sorters.pretrain``.

    Args:
        length: scores per vector, the most that it is trained on.
        shortest: the fewest that it is trained on; ``length`` alone if not given.
        hidden: LSTM units per direction and layer.
        layers: LSTM layers.

    Shape:
        scores (..., n), shortest <= n <= length, -> ranks (..., n), 0 = best.

    Raises:
        ValueError: a vector of a length that it was not trained on.
    """

    def __init__(self, length: int = 100, shortest: int | None = None, hidden: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.length = length
        self.shortest = length if shortest is None else shortest
        if not 1 <= self.shortest <= length:
            raise ValueError(f"shortest is {shortest} and length {length}: expected 1 <= shortest <= length")
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(2 * hidden, 1)

    def train(self, mode: bool = True) -> "LSTMSorter":
        """As usual, but for the LSTM: cuDNN has no backward pass outside of training mode, and without
        dropout both modes compute the same.
        """
        super().train(mode)
        self.lstm.train()
        return self

    def forward(self, scores: Tensor) -> Tensor:
        scores = check_scores(scores).to(self.projection.weight.dtype)
        length = scores.shape[-1]
        if not self.shortest <= length <= self.length:
            trained_on = f"{self.length}" if self.shortest == self.length else f"{self.shortest} to {self.length}"
            raise ValueError(
                f"this LSTMSorter ranks {trained_on} scores, not {length}: "
                f"train one with length: {length} (stage pretrain_sorter), or take a sorter of any length"
            )
        states, _ = self.lstm(scores.reshape(-1, length, 1))
        # The network learns the rank as a fraction of the length, the unit of table 5.1.
        return torch.mul(self.projection(states).reshape(scores.shape), length)
