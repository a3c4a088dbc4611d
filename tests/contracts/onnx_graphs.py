"""Export of several encoders as one ONNX graph: one export is slow, and its cost hardly depends on
their number."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from bifocal import registry

Recipe = Sequence[tuple[str, Mapping[str, Any], Sequence[str]]]
"""Name, arguments and names of the inputs of each encoder."""


class Together(nn.Module):
    """Encoders that each read some of the named inputs."""

    def __init__(self, package: str, recipe: Recipe) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoders = nn.ModuleList(
            registry.build(package, {"name": name, **more}) for name, more, _ in recipe
        )
        self.inputs = [inputs for _, _, inputs in recipe]
        self.eval()

    def forward(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        return [
            encoder(*(inputs[name] for name in names))
            for encoder, names in zip(self.encoders, self.inputs, strict=True)
        ]


def export(
    package: str, recipe: Recipe, example: dict[str, Tensor], axes: dict[str, list[str]], file: Path
) -> None:
    """Write one graph of all encoders; ``axes`` names the dimensions of each input, "" for a fixed
    one."""
    dims = {name: torch.export.Dim(name) for names in axes.values() for name in names if name}
    torch.onnx.export(
        Together(package, recipe),
        kwargs={"inputs": example},
        f=file,
        input_names=list(example),
        output_names=[f"embeddings_{number}" for number in range(len(recipe))],
        dynamic_shapes={
            "inputs": {
                name: {axis: dims[dim] for axis, dim in enumerate(axes[name]) if dim}
                for name in example
            }
        },
        dynamo=True,
        verbose=False,
    )


def assert_parity(package: str, recipe: Recipe, inputs: dict[str, Tensor], file: Path) -> None:
    """Compare the outputs of the graph with torch's."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    with torch.inference_mode():
        expected = Together(package, recipe)(inputs)
    for (name, _, _), output, tensor in zip(recipe, outputs, expected, strict=True):
        np.testing.assert_allclose(output, tensor.numpy(), atol=1e-5, err_msg=name)
