"""ElmoMixtureEncoder against loops over layers and words."""

import math

import pytest
import torch

from bifocal.text_encoders import ElmoMixtureEncoder
from bifocal.text_encoders.contextual import ScalarMixture

LAYERS, DIM = 3, 4
LENGTHS = torch.tensor([3, 1])


@pytest.fixture(params=[2, 1])
def encoder(request: pytest.FixtureRequest) -> ElmoMixtureEncoder:
    torch.manual_seed(0)
    encoder = ElmoMixtureEncoder(input_dim=DIM, dim=5, fully_connected=request.param).double()
    for mixture in (encoder.word_mixture, encoder.sentence_mixture):
        torch.nn.init.normal_(mixture.weights)
        torch.nn.init.normal_(mixture.gamma)
    return encoder


def mixed(mixture: ScalarMixture, vectors: list[list[float]]) -> list[float]:
    exponentials = [math.exp(weight) for weight in mixture.weights.tolist()]
    shares = [mixture.gamma.item() * value / sum(exponentials) for value in exponentials]
    return [
        sum(share * row[i] for share, row in zip(shares, vectors, strict=True)) for i in range(DIM)
    ]


def projected(layers: torch.nn.Sequential, vector: list[float]) -> list[float]:
    for layer, leaky in [
        (layer, layer is not layers[-1]) for layer in layers if isinstance(layer, torch.nn.Linear)
    ]:
        vector = [
            sum(w * x for w, x in zip(row, vector, strict=True)) + bias
            for row, bias in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        ]
        vector = [x if x > 0 or not leaky else 0.25 * x for x in vector]
    norm = math.sqrt(sum(x**2 for x in vector))
    return [x / norm for x in vector]


def test_sentence_embedding_uses_last_outputs_of_both_directions(
    encoder: ElmoMixtureEncoder,
) -> None:
    values = torch.randn(2, LAYERS, 4, DIM, dtype=torch.float64)
    for row, length, embedding in zip(
        values.tolist(), LENGTHS.tolist(), encoder(values, LENGTHS).tolist(), strict=True
    ):
        last = [layer[length - 1][: DIM // 2] + layer[0][DIM // 2 :] for layer in row[1:]]
        assert embedding == pytest.approx(
            projected(encoder.sentence_layers, mixed(encoder.sentence_mixture, last))
        )


def test_encode_words_mixes_layers_of_each_word_and_masks_padding(
    encoder: ElmoMixtureEncoder,
) -> None:
    values = torch.randn(2, LAYERS, 4, DIM, dtype=torch.float64)
    words = encoder.encode_words(values, LENGTHS)
    for sentence, length in enumerate(LENGTHS.tolist()):
        assert not words[sentence, length:].any()
        for step in range(length):
            mixture = mixed(encoder.word_mixture, values[sentence, :, step].tolist())
            assert words[sentence, step].tolist() == pytest.approx(
                projected(encoder.word_layers, mixture)
            )


def test_elmo_mixture_rejects_input_without_layers(encoder: ElmoMixtureEncoder) -> None:
    with pytest.raises(ValueError, match="needs contextual vectors"):
        encoder(torch.zeros(2, 4, DIM), LENGTHS)
