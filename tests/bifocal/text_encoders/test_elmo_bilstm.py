"""ElmoBiLSTMEncoder against torch's bidirectional LSTM on single sentences."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.text_encoders import ElmoBiLSTMEncoder

LENGTHS = torch.tensor([4, 1, 3])


@pytest.mark.parametrize("fully_connected", [1, 2])
def test_outputs_are_those_of_a_bidirectional_lstm_and_of_the_mappings(
    fully_connected: int,
) -> None:
    torch.manual_seed(0)
    encoder = ElmoBiLSTMEncoder(
        input_dim=6, dim=5, layers=2, units=4, fully_connected=fully_connected
    ).double()
    reference = nn.LSTM(3, 4, batch_first=True, bidirectional=True).double()
    for name, weight in encoder.forwards.named_parameters():
        getattr(reference, name).data.copy_(weight)
    for name, weight in encoder.backwards.named_parameters():
        getattr(reference, f"{name}_reverse").data.copy_(weight)
    values = torch.randn(3, 2, 4, 6, dtype=torch.float64)
    sentences, words = encoder(values, LENGTHS), encoder.encode_words(values, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        outputs, (last, _) = reference(values[row, 0, None, :length, :3])
        torch.testing.assert_close(
            words[row, :length], mapped(encoder.word_layers, outputs[0], fully_connected)
        )
        assert not words[row, length:].any()
        expected = mapped(encoder.sentence_layers, last.flatten()[None], fully_connected)[0]
        torch.testing.assert_close(sentences[row], expected)


def mapped(layers: nn.Sequential, inputs: Tensor, fully_connected: int) -> Tensor:
    """Affine layers, a leaky ReLU of slope 0.25 after each unless there is one, and the norm."""
    affine = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert len(affine) == fully_connected
    for layer in affine:
        inputs = inputs @ layer.weight.T + layer.bias
        if fully_connected > 1:
            inputs = torch.where(inputs < 0, 0.25 * inputs, inputs)
    return normalize(inputs, dim=1)
