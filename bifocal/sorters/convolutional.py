"""The convolutional sorters of SoDeep: of the paper, and of its published code."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from bifocal.sorters.ranks import TrainedSorter


class CNNSorter(TrainedSorter):
    """Blocks of convolution, batch norm and ReLU, then an affine layer over the positions.

    Engilberge et al., "SoDeep", CVPR 2019; thesis 5.3.1, figure 5.3b. The last block has as many
    channels as there are scores: channel i becomes the rank of score i. The thesis does not state
    the filter sizes; here the receptive field of the last block covers all scores.
    ``PublishedCNNSorter`` is the network of the authors' code.

    Args:
        length: scores per vector.
        blocks: convolutional blocks.

    Shape:
        scores (..., length) -> ranks (..., length), 0 = best.

    Example:
        >>> import torch
        >>> CNNSorter(length=8, blocks=2)(torch.randn(3, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, length: int = 100, blocks: int = 8) -> None:
        super().__init__(length)
        channels = [1, *(min(16 * 2**block, length) for block in range(blocks - 1)), length]
        width = 2 * -(-(length - 1) // blocks) + 1
        self.blocks = nn.Sequential()
        for before, after in pairwise(channels):
            convolution = nn.Conv1d(before, after, width, padding="same", bias=False)
            self.blocks.append(nn.Sequential(convolution, nn.BatchNorm1d(after), nn.ReLU()))
        self.projection = nn.Linear(length, 1)

    def fractions(self, rows: Tensor) -> Tensor:
        """Return the ranks of rows (B, n) as fractions of n."""
        fractions: Tensor = self.projection(self.blocks(rows.unsqueeze(1)))
        return fractions


CHANNELS = (1, 8, 16, 32, 64, 96, 128, 256, 256, 128)
WIDTHS = (2, 3, 5, 7, 10, 7, 5, 3, 3)
SHORTEST = sum(WIDTHS) - len(WIDTHS) + 1


class PublishedCNNSorter(TrainedSorter):
    """Nine convolutions without padding, then one over all remaining positions, and a sigmoid.

    Engilberge et al., "SoDeep", CVPR 2019: ``cnn`` of the authors' code. PReLU follows each
    convolution, batch norm each second one. The thesis describes eight blocks (``CNNSorter``) and
    gives no filters.

    Args:
        length: scores per vector, at least 37.

    Shape:
        scores (..., length) -> ranks (..., length), 0 = best.

    Raises:
        ValueError: ``length`` is below 37.

    Example:
        >>> PublishedCNNSorter(length=40)(torch.randn(3, 40)).shape
        torch.Size([3, 40])
    """

    def __init__(self, length: int = 100) -> None:
        super().__init__(length)
        if length < SHORTEST:
            raise ValueError(
                f"length is {length}: nine convolutions need at least {SHORTEST} scores"
            )
        self.convolutions = nn.Sequential()
        layers = zip(pairwise(CHANNELS), WIDTHS, strict=True)
        for number, ((before, after), width) in enumerate(layers):
            norm = [nn.BatchNorm1d(after)] if number % 2 else []
            convolution = nn.Conv1d(before, after, width)
            self.convolutions.append(nn.Sequential(convolution, *norm, nn.PReLU()))
        self.projection = nn.Conv1d(CHANNELS[-1], length, length - SHORTEST + 1)

    def fractions(self, rows: Tensor) -> Tensor:
        """Return the ranks of rows (B, n) as fractions of n."""
        return torch.sigmoid(self.projection(self.convolutions(rows.unsqueeze(1))))
