"""Gated recurrent units as text encoder."""

from torch import nn

from bifocal.text_encoders.recurrent.rnn import RecurrentEncoder


class GRUEncoder(RecurrentEncoder):
    """GRU; arguments and shapes: see ``RecurrentEncoder``.

    Faghri et al., "VSE++", BMVC 2018 (one layer of 1024); Lee et al., "Stacked cross attention", ECCV 2018 (the mean
    of two directions).

    Example:
        >>> import torch
        >>> GRUEncoder(input_dim=5, dim=4)(torch.rand(2, 3, 5), torch.tensor([3, 1])).shape
        torch.Size([2, 4])
    """

    network = nn.GRU
