"""Export of a ranking model: an ONNX graph from features or pixels to scores."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from bifocal.durable import write_json
from bifocal.export.backbone import export_images
from bifocal.export.graphs.parity import LENGTHS, Parity, compare_graph
from bifocal.export.graphs.write import (
    Shape,
    check_shapes,
    random_images,
    run_in_fresh_process,
    write_graph,
)
from bifocal.ranking_heads.model import RankingModel, load_head
from bifocal.serialization import load_config

GRAPH, LABELS = "ranking_head.onnx", "labels.json"


class _Pixels(nn.Module):
    def __init__(self, model: RankingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model.score_pixels(pixels)


def export_ranking_model(
    model_directory: Path, features: Path, folder: Path, *, seed: int
) -> list[Parity]:
    """Write the graphs of a ranking model and the preprocessing of its images, and compare the
    graphs with torch."""
    export_head(model_directory, folder)
    parities = compare_head(model_directory, folder / GRAPH, seed)
    return [
        *parities,
        *export_images(features, folder, load_head(model_directory)[0].backbone, seed),
    ]


def export_head(model_directory: Path, folder: Path) -> None:
    """Write ``ranking_head.onnx``, from the inputs of ``export_encoder`` to ``scores`` (batch, C)
    float32, and the scores' names in ``labels.json``.
    """
    run_in_fresh_process(_export, model_directory, folder / GRAPH)
    check_shapes(folder / GRAPH, input_shapes(model_directory))
    config = load_config(model_directory, "ranking head")
    write_json(folder / LABELS, {name: config[name] for name in ("task", "labels")})


def compare_head(model_directory: Path, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported head with torch on random inputs; differences are relative to the largest
    score."""
    shapes = input_shapes(model_directory)

    def example(batch: int, length: int) -> tuple[Tensor, ...]:
        return _example(shapes, batch, length, seed)

    lengths = LENGTHS if len(shapes) > 1 else LENGTHS[:1]
    return compare_graph(
        "ranking_head", file, _module(load_head(model_directory)[0]), example, lengths=lengths
    )


def input_shapes(model_directory: Path) -> dict[str, Shape]:
    """Return the shape of each input of the graph, by its name."""
    model, _ = load_head(model_directory)
    if model.reads_pixels:
        assert model.backbone is not None
        return {"pixels": model.backbone.input_shape}
    dim = load_config(model_directory, "ranking head")["input_dim"]
    return {"features": ("batch", "regions", dim), "mask": ("batch", "regions")}


def _module(model: RankingModel) -> nn.Module:
    return (_Pixels(model) if model.reads_pixels else model).eval()


def _example(shapes: dict[str, Shape], batch: int, length: int, seed: int) -> tuple[Tensor, ...]:
    return random_images(shapes, batch, length, length, torch.Generator().manual_seed(seed))


def _export(model_directory: Path, file: Path) -> None:
    shapes = input_shapes(model_directory)
    module = _module(load_head(model_directory)[0])
    example = _example(shapes, batch=3, length=4, seed=0)
    write_graph(module, example, shapes, ("scores",), file, any_size="pixels" in shapes)
