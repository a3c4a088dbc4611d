"""Export of a ranking model: an ONNX graph from features or pixels to scores."""

import json
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

from bifocal.export.graphs import Shape, check_shapes, write_graph
from bifocal.export.parity import BATCHES, LENGTHS, Parity, max_difference
from bifocal.export.process import run_in_fresh_process
from bifocal.ranking_heads.model import RankingModel
from bifocal.ranking_heads.serialization import load_head
from bifocal.serialization import load_config

GRAPH, LABELS = "ranking_head.onnx", "labels.json"


class _Pixels(nn.Module):
    def __init__(self, model: RankingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model.score_pixels(pixels)


def export_head(model_directory: Path, folder: Path) -> None:
    """Write ``ranking_head.onnx`` and ``labels.json``: the task and the names of the scores.

    Inputs: ``pixels`` (batch, 3, height, width) float32, 0 to 255, resized as in evaluation; or ``features`` (batch,
    regions, D) float32 and ``mask`` (batch, regions) bool. Output: ``scores`` (batch, C) float32.
    """
    run_in_fresh_process(_export, model_directory, folder / GRAPH)
    check_shapes(folder / GRAPH, input_shapes(model_directory))
    config = load_config(model_directory, "ranking head")
    content = {name: config[name] for name in ("task", "labels")}
    (folder / LABELS).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def compare_head(model_directory: Path, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported head with torch on random inputs; differences are relative to the largest score."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    module = _module(load_head(model_directory)[0])
    shapes = input_shapes(model_directory)
    for batch in BATCHES:
        for length in LENGTHS if len(shapes) > 1 else LENGTHS[:1]:
            inputs = _example(shapes, batch, length, seed)
            with torch.inference_mode():
                expected = module(*inputs).numpy()
            (output,) = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})
            scale = max(float(abs(expected).max()), 1e-12)
            yield Parity("ranking_head", batch, length, max_difference(output, expected) / scale)


def input_shapes(model_directory: Path) -> dict[str, Shape]:
    """Return the shape of each input of the graph, by its name."""
    model, _ = load_head(model_directory)
    if model.reads_pixels:
        assert model.backbone is not None
        return {"pixels": model.backbone.input_shape}
    dim = load_config(model_directory, "ranking head")["input_dim"]
    return {"features": ("batch", "regions", dim), "mask": ("batch", "regions")}


def keeps_square(model_directory: Path, size: int) -> bool:
    """Return whether the model reads pixels, and evaluation leaves a square image of ``size`` pixels as it is."""
    backbone = load_head(model_directory)[0].backbone
    return backbone is not None and backbone.keeps_square(size)


def stretched_side(model_directory: Path) -> int | None:
    """Return the side of the square that the model stretches original images to; None if it does not."""
    backbone = load_head(model_directory)[0].backbone
    return None if backbone is None else backbone.stretched_side


def _module(model: RankingModel) -> nn.Module:
    return (_Pixels(model) if model.reads_pixels else model).eval()


def _example(shapes: dict[str, Shape], batch: int, length: int, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"batch": batch, "regions": length, "height": 64 + 8 * length, "width": 96 + 4 * length}
    sized = [[sizes[dim] if isinstance(dim, str) else dim for dim in shape] for shape in shapes.values()]
    if len(sized) == 1:
        return (255 * torch.rand(sized[0], generator=generator),)
    mask = torch.rand(sized[1], generator=generator) < 0.7
    mask[:, 0] = True
    return torch.randn(sized[0], generator=generator), mask


def _export(model_directory: Path, file: Path) -> None:
    shapes = input_shapes(model_directory)
    module = _module(load_head(model_directory)[0])
    example = _example(shapes, batch=3, length=4, seed=0)
    write_graph(module, example, shapes, ("scores",), file, any_size="pixels" in shapes)
