"""Text encoders of one vector per caption, against their equations."""

import math

import pytest
import torch

from bifocal.text_encoders import BagOfWordsEncoder, ProjectionEncoder

ONES = torch.ones(4, dtype=torch.int64)


def test_bag_of_words_equals_normalized_product() -> None:
    torch.manual_seed(0)
    encoder = BagOfWordsEncoder(input_dim=5, dim=3).double()
    values = torch.rand(4, 5, dtype=torch.float64)
    weight = encoder.projection.weight.tolist()
    for row, embedding in zip(values.tolist(), encoder(values, ONES).tolist(), strict=True):
        product = [sum(w * t for w, t in zip(line, row, strict=True)) for line in weight]
        norm = math.sqrt(sum(value**2 for value in product))
        assert embedding == pytest.approx([value / norm for value in product])


def test_bag_of_words_of_caption_without_terms_has_finite_gradient() -> None:
    encoder = BagOfWordsEncoder(input_dim=5, dim=3)
    embedding = encoder(torch.zeros(4, 5), ONES)
    assert not embedding.any()
    embedding.sum().backward()
    assert encoder.projection.weight.grad is not None
    assert torch.isfinite(encoder.projection.weight.grad).all()


def test_projection_applies_two_layers_and_batch_norm() -> None:
    torch.manual_seed(0)
    encoder = ProjectionEncoder(input_dim=5, dim=3, hidden=4, dropout=0.0).double()
    values = torch.randn(4, 5, dtype=torch.float64)
    first, second = encoder.projection[0], encoder.projection[3]
    hidden = (values @ first.weight.T + first.bias).clamp(min=0)
    outputs = hidden @ second.weight.T + second.bias
    outputs = (outputs - outputs.mean(dim=0)) / (outputs.var(dim=0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(encoder(values, ONES), outputs / outputs.norm(dim=1, keepdim=True))


@pytest.mark.parametrize(
    "encoder", [BagOfWordsEncoder(input_dim=5, dim=3), ProjectionEncoder(input_dim=5, dim=3)]
)
def test_vector_encoder_rejects_sequences(encoder: torch.nn.Module) -> None:
    for shape in ((4, 6), (4, 2, 5)):
        with pytest.raises(ValueError, match="one vector per caption"):
            encoder(torch.zeros(shape), ONES)
