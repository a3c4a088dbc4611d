"""The weights of a transformer that train: all, the last layers, or a change of low rank."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers import Subwords
from bifocal.text.vectorizers.base import write_text
from bifocal.text_encoders import TransformerEncoder
from bifocal.text_encoders.contextual.tuning import AllLayers, LastLayers, LoRA, Tuning
from bifocal.training.optimizers import apply_freezing

SENTENCES = ["a dog runs", "two red birds on grass", ""]
LAYERS = 3


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectorizer = Subwords(path=write_tiny_transformer(SENTENCES, dim=8, layers=LAYERS))
    vectorizer.fit([], seed=0)
    folder: Path = tmp_path_factory.mktemp("text")
    write_text(folder, vectorizer, range(len(SENTENCES)), SENTENCES)
    return folder


def new_encoder(text: Path, train: Tuning, **changes: Any) -> TransformerEncoder:
    torch.manual_seed(0)
    vectorizer = Subwords()
    vectorizer.load(text)
    encoder = TransformerEncoder(8, 4, train, network=vectorizer.folder.config, **changes)
    encoder.load_pretrained(text)
    return encoder


def inputs() -> tuple[Tensor, Tensor]:
    return torch.tensor([[2, 4, 5, 3], [2, 6, 3, 0], [2, 3, 0, 0]]), torch.tensor([4, 3, 2])


def states(text: Path, ids: list[int]) -> Tensor:
    """Return the last hidden states (T, K) of one sentence by the library, in double precision."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(text / "transformer", dtype=torch.float64)
    return network.eval()(torch.tensor([ids])).last_hidden_state[0].detach()


@pytest.mark.parametrize(
    "train", [AllLayers(), LastLayers(1), LoRA(rank=2)], ids=lambda train: type(train).__name__
)
@pytest.mark.parametrize("pooling", ["mean_tokens", "max_tokens", "cls_token"])
def test_training_starts_from_the_published_network(
    text: Path, train: Tuning, pooling: Any
) -> None:
    encoder = new_encoder(text, train, pooling=pooling).eval()
    values, lengths = inputs()
    embeddings = encoder(values, lengths)
    weight, bias = encoder.projection.weight.double(), encoder.projection.bias.double()
    for row, length in enumerate(lengths.tolist()):
        last = states(text, values[row, :length].tolist())
        pooled = {
            "mean_tokens": last.sum(dim=0) / length,
            "max_tokens": last.amax(dim=0),
            "cls_token": last[0],
        }[pooling]
        vector = weight @ pooled + bias
        torch.testing.assert_close(
            embeddings[row].double(), vector / vector.norm(), atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize(
    ("train", "trained"),
    [
        (AllLayers(), ("embeddings.", *(f"encoder.layer.{layer}." for layer in range(LAYERS)))),
        (LastLayers(2), ("encoder.layer.1.", "encoder.layer.2.")),
        (LastLayers(0), ()),
        (LoRA(rank=3), (".query.a", ".query.b", ".value.a", ".value.b")),
    ],
)
def test_other_weights_stay_whatever_a_phase_thaws(
    text: Path, train: Tuning, trained: tuple[str, ...]
) -> None:
    encoder = new_encoder(text, train)
    start = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    parameters = list(encoder.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.5, weight_decay=0.1)
    for epoch in range(2):  # the second epoch thaws the whole encoder
        apply_freezing(encoder, {"transformer": 1}, epoch)
        optimizer.zero_grad()
        embeddings = encoder(*inputs())
        (embeddings * torch.linspace(-1, 1, 12).view(3, 4)).sum().backward()
        optimizer.step()
        changed = {
            name for name, tensor in encoder.state_dict().items() if not tensor.equal(start[name])
        }
        expected = {name for name in start if name.startswith("projection.")}
        if epoch:
            expected |= {name for name in start if any(part in name for part in trained)}
        # Rows of tokens that no sentence has do change, by the weight decay; A has no gradient
        # while B is zero.
        assert changed == expected


def test_lora_adds_a_change_of_low_rank_that_merges(text: Path) -> None:
    encoder = new_encoder(text, LoRA(rank=2, alpha=6.0)).eval()
    plain = new_encoder(text, LastLayers(0)).eval()
    changes: dict[str, Tensor] = {}
    for name, module in encoder.transformer.named_modules():
        if hasattr(module, "scale"):
            assert module.scale == 3.0
            torch.nn.init.normal_(module.b)
            changes[name] = 3.0 * module.b.detach().double() @ module.a.detach().double()
    assert len(changes) == 2 * LAYERS
    for name, change in changes.items():
        assert torch.linalg.matrix_rank(change) == 2
        weight = plain.transformer.get_submodule(name).weight
        weight.copy_(weight.double() + change)
    plain.projection.load_state_dict(encoder.projection.state_dict())
    trained = encoder(*inputs())
    torch.testing.assert_close(trained, plain(*inputs()), atol=1e-5, rtol=1e-4)
    encoder.merge_adapters()
    assert encoder.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(encoder(*inputs()), trained, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (LastLayers(4), "layers is 4: the transformer has 3"),
        (LastLayers(-1), "layers is -1"),
        (LoRA(0), "rank is 0"),
    ],
)
def test_tuning_that_does_not_fit_is_refused(text: Path, train: Tuning, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        new_encoder(text, train)


def test_network_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="input_dim is 5, and the states of the network have 384"):
        TransformerEncoder(input_dim=5)
