"""ElmoBiLSTMEncoder against torch's bidirectional LSTM on single sentences."""

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from bifocal.text_encoders import ElmoBiLSTMEncoder

LENGTHS = torch.tensor([4, 1, 3])


def test_outputs_are_those_of_a_bidirectional_lstm() -> None:
    torch.manual_seed(0)
    encoder = ElmoBiLSTMEncoder(input_dim=6, dim=8, layers=2).double()
    reference = nn.LSTM(3, 4, batch_first=True, bidirectional=True).double()
    for name, weight in encoder.forwards.named_parameters():
        getattr(reference, name).data.copy_(weight)
    for name, weight in encoder.backwards.named_parameters():
        getattr(reference, f"{name}_reverse").data.copy_(weight)
    values = torch.randn(3, 2, 4, 6, dtype=torch.float64)
    sentences, words = encoder(values, LENGTHS), encoder.encode_words(values, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        outputs, (last, _) = reference(values[row, 0, None, :length, :3])
        torch.testing.assert_close(words[row, :length], normalize(outputs[0], dim=1))
        assert not words[row, length:].any()
        torch.testing.assert_close(sentences[row], normalize(last.flatten(), dim=0))


def test_dim_must_be_even() -> None:
    with pytest.raises(ValueError, match="dim is 5: expected an even number"):
        ElmoBiLSTMEncoder(dim=5)
