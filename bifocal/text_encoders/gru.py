"""Gated recurrent units as text encoder."""

from torch import nn

from bifocal.text_encoders.recurrent import RecurrentEncoder


class GRUEncoder(RecurrentEncoder):
    """GRU; arguments and shapes are those of ``RecurrentEncoder``.

    Faghri et al., "VSE++", BMVC 2018 (one layer of 1024); Lee et al., "Stacked cross attention", ECCV 2018 (the mean
    of two directions).
    """

    network = nn.GRU
