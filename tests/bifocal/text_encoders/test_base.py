"""Properties of all text encoders over sequences."""

import pytest
import torch
from torch import nn

from bifocal.text_encoders import GRUEncoder, LSTMEncoder, SRUEncoder
from bifocal.text_encoders.base import reverse

ENCODERS = {
    "sru": lambda: SRUEncoder(input_dim=3, dim=4, layers=2),
    "gru": lambda: GRUEncoder(input_dim=3, dim=4, layers=2),
    "bidirectional gru": lambda: GRUEncoder(input_dim=3, dim=4, bidirectional=True),
    "lstm": lambda: LSTMEncoder(input_dim=3, dim=4, layers=2),
    "bidirectional lstm": lambda: LSTMEncoder(input_dim=3, dim=4, bidirectional=True),
}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return ENCODERS[name]().double().eval()


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(
    ("shape", "lengths", "reason"),
    [
        ((2, 4, 5), [1, 2], "expected \\(B, T, 3\\)"),
        ((2, 4, 3), [1, 2, 3], "expected \\(B, T, 3\\)"),
        ((2, 4, 3), [0, 2], "one <unk> token"),
        ((2, 4, 3), [1, 5], "expected \\[1, 4\\]"),
    ],
)
def test_sequence_encoder_rejects_wrong_shapes_and_lengths(
    name: str, shape: tuple[int, ...], lengths: list[int], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        build(name)(torch.zeros(shape, dtype=torch.float64), torch.tensor(lengths))


def test_reverse_keeps_padding_at_the_end() -> None:
    values = torch.arange(1.0, 9.0).view(2, 4, 1)
    assert reverse(values, torch.tensor([4, 2]))[:, :, 0].tolist() == [[4, 3, 2, 1], [6, 5, 7, 8]]


@pytest.mark.parametrize(
    ("name", "torch_module"), [("bidirectional gru", nn.GRU), ("bidirectional lstm", nn.LSTM)]
)
def test_bidirectional_encoder_equals_torch(
    name: str, torch_module: type[nn.GRU] | type[nn.LSTM]
) -> None:
    encoder = build(name)
    assert isinstance(encoder, GRUEncoder | LSTMEncoder)
    assert encoder.backwards is not None
    reference = torch_module(3, 4, batch_first=True, bidirectional=True).double()
    weights = {name: value for name, value in encoder.forwards.named_parameters()}
    weights |= {f"{name}_reverse": value for name, value in encoder.backwards.named_parameters()}
    reference.load_state_dict(weights)
    values = torch.randn(2, 5, 3, dtype=torch.float64)
    outputs = reference(values)[0]
    last = (outputs[:, -1, :4] + outputs[:, 0, 4:]) / 2
    expected = nn.functional.normalize(last, dim=1)
    torch.testing.assert_close(encoder(values, torch.tensor([5, 5])), expected)
