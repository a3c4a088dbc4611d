"""Promises of every registered text encoder: values of its input shape and lengths (B,) -> (B,
d)."""

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor

from bifocal import registry
from bifocal.export.graphs.write import run_in_fresh_process
from bifocal.serialization import load_state, save_network
from bifocal.text_encoders import ResidualHead
from bifocal.text_encoders.base import TextEncoder
from tests.contracts.onnx_graphs import assert_parity, export

PACKAGE = "bifocal.text_encoders"
ENCODERS = registry.registered(PACKAGE)
INPUT_DIM, DIM, LENGTHS = 6, 4, torch.tensor([5, 2, 1, 4])
SMALL: dict[str, dict[str, Any]] = {
    "GRUEncoder": {"bidirectional": True},
    "ProjectionEncoder": {"hidden": 5},
    "ResidualHead": {"hidden": 5},
    "SRUEncoder": {"layers": 2},
    "TokenMixtureEncoder": {"layers": 3},
}


def new_encoder(name: str, seed: int = 0) -> TextEncoder:
    torch.manual_seed(seed)
    ref = {"name": name, **SMALL.get(name, {})}
    encoder: TextEncoder = registry.build(PACKAGE, ref, input_dim=INPUT_DIM, dim=DIM)
    if isinstance(encoder, ResidualHead):  # as after a training
        torch.nn.init.normal_(encoder.head.layers[-1].weight)
    return encoder.eval()


def new_values(
    encoder: TextEncoder, batch: int = len(LENGTHS), time: int = 5, seed: int = 1
) -> Tensor:
    sizes = {"batch": batch, "time": time}
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in encoder.input_shape]
    generator = torch.Generator().manual_seed(seed)
    if len(shape) == 2 and encoder.input_shape[1] == "time":
        return torch.randint(1, 20, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def pad_time(encoder: TextEncoder, values: Tensor, steps: int) -> Tensor:
    """Append ``steps`` of noise on the time axis, if there is one."""
    if "time" not in encoder.input_shape:
        return values
    axis = encoder.input_shape.index("time")
    return torch.cat([values, 9 * torch.ones_like(values.narrow(axis, 0, steps))], dim=axis)


@pytest.mark.parametrize("name", sorted(ENCODERS))
class TestEveryTextEncoder:
    def test_builds_with_the_defaults_of_its_paper(self, name: str) -> None:
        with torch.device("meta"):
            encoder = registry.build(PACKAGE, name)
        assert isinstance(encoder, TextEncoder)
        assert encoder.input_shape[-1] in (encoder.input_dim, "time")

    def test_gives_one_float32_vector_of_unit_norm_per_caption(self, name: str) -> None:
        encoder = new_encoder(name)
        embeddings = encoder(new_values(encoder), LENGTHS)
        assert embeddings.shape == (len(LENGTHS), encoder.dim) == (len(LENGTHS), DIM)
        assert embeddings.dtype == torch.float32
        torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(len(LENGTHS)))

    def test_ignores_the_padding(self, name: str) -> None:
        encoder = new_encoder(name)
        values = new_values(encoder)
        torch.testing.assert_close(
            encoder(pad_time(encoder, values, 2), LENGTHS), encoder(values, LENGTHS)
        )

    def test_encodes_captions_independently(self, name: str) -> None:
        encoder = new_encoder(name)
        values, order = new_values(encoder), torch.tensor([2, 0, 3, 1])
        embeddings = encoder(values, LENGTHS)
        torch.testing.assert_close(encoder(values[order], LENGTHS[order]), embeddings[order])
        for row in range(len(LENGTHS)):
            alone = encoder(values[row : row + 1], LENGTHS[row : row + 1])
            torch.testing.assert_close(alone[0], embeddings[row])

    def test_has_a_gradient_for_every_parameter(self, name: str) -> None:
        encoder = new_encoder(name).train()
        values = new_values(encoder)
        output = encoder(values, LENGTHS)
        loss = (output * new_values(encoder, seed=2).flatten(1)[:, :DIM]).sum()
        # An encoder with words has parameters that only the words use.
        if hasattr(encoder, "encode_words"):
            loss = loss + encoder.encode_words(values, LENGTHS)[..., 0].sum()
        loss.backward()
        missing = [
            key
            for key, weight in encoder.named_parameters()
            if weight.grad is None or not weight.grad.any()
        ]
        assert not missing

    def test_is_the_same_after_save_and_load(self, name: str, tmp_path: Path) -> None:
        encoder, other = new_encoder(name), new_encoder(name, seed=7)
        save_network(tmp_path, {"name": name}, encoder.state_dict())
        other.load_state_dict(load_state(tmp_path))
        values = new_values(encoder)
        assert encoder(values, LENGTHS).equal(other(values, LENGTHS))

    def test_refuses_values_of_another_shape(self, name: str) -> None:
        encoder = new_encoder(name)
        with pytest.raises(ValueError, match="expected"):
            encoder(new_values(encoder)[..., :-1], LENGTHS)


@pytest.mark.slow
def test_all_text_encoders_export_with_dynamic_batch_and_time(tmp_path: Path) -> None:
    inputs = {2: "vectors", 3: "tokens", 4: "contextual"}
    axes = {
        "vectors": ["batch", ""],
        "tokens": ["batch", "time", ""],
        "contextual": ["batch", "", "time", ""],
    }
    axes |= {"ids": ["batch", "time"], "lengths": ["batch"]}
    recipe, by_name = [], {}
    for name in sorted(ENCODERS):
        shape = new_encoder(name).input_shape
        values = "ids" if shape[-1] == "time" else inputs[len(shape)]
        by_name[values] = new_encoder(name)
        arguments = {"input_dim": INPUT_DIM, "dim": DIM, **SMALL.get(name, {})}
        recipe.append((name, arguments, (values, "lengths")))

    def batch_of(size: int, time: int) -> dict[str, Tensor]:
        lengths = torch.randint(1, time + 1, (size,), generator=torch.Generator().manual_seed(time))
        return {name: new_values(encoder, size, time) for name, encoder in by_name.items()} | {
            "lengths": lengths
        }

    file = tmp_path / "encoders.onnx"
    run_in_fresh_process(export, PACKAGE, recipe, batch_of(3, 7), axes, file)
    for value in onnx.load(file).graph.input:
        names = [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        assert names == axes[value.name]
    for size, time in ((1, 1), (1, 9), (5, 2), (4, 31)):
        assert_parity(PACKAGE, recipe, batch_of(size, time), file)
